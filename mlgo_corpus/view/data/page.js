"use strict";
// Draw each chart of the page into its box. Expressions are interpreted, not compiled to code, so the page's
// content security policy need not allow eval.
(function () {
  const said = JSON.parse(document.getElementById("charts").textContent);
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    ast: true,
    config: said.config,
    tooltip: { theme: "custom" },
  };
  const draw = async function ([name, spec]) {
    const box = document.getElementById(name);
    try {
      const made = await window.vegaEmbed(box, spec, options);
      const view = made.view;
      // Keep a chart as wide as its box, also if the box changes and the window does not.
      let width = box.clientWidth;
      new ResizeObserver(function () {
        if (box.clientWidth && box.clientWidth !== width) {
          width = box.clientWidth;
          view.width(width).runAsync();
        }
      }).observe(box);
    } catch (error) {
      console.error(name, error);
      box.textContent = "This chart could not be drawn; its numbers are in the table below.";
    }
  };
  const narrow = window.matchMedia("(max-width: 70rem)");
  const toc = document.querySelector("details.toc");
  if (narrow.matches) {
    toc.open = false;
  }
  narrow.addEventListener("change", function () {
    toc.open = !narrow.matches;
  });
  Promise.all(Object.entries(said.charts).map(draw)).then(function () {
    document.documentElement.dataset.charts = "drawn";
  });
})();
