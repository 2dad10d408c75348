"use strict";
// Draws each chart of the page into its box. Expressions are interpreted, never made into code, so the page's
// policy need not allow that.
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
      // A chart is as wide as its box, also when that changes without the window doing so.
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
