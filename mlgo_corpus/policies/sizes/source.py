"""A model of native size as C99, with the functions of a policy: ``policy.c`` and ``policy.h``.

It gives the size, not the interval: as `mlgo_corpus.policies.sizes.model` does, to the bit.
"""

from __future__ import annotations

from typing import Final

from mlgo_corpus.policies.sizes.model import (
    LARGEST_BASE,
    LARGEST_SCORE,
    LN2_PARTS,
    LOG2E,
    ROUNDING,
    SHIFT,
    TAYLOR,
    SizeModel,
)
from mlgo_corpus.policies.source import (
    HEADER,
    about_source,
    c_double,
    c_table,
    enumerated,
    feature_tables,
    filled,
    model_source,
)

_DECIDE: Final = """
static double base(const double *x) {
  double total = @bias@;
  for (int i = 0; i < INPUTS; ++i) {
    double product = x[i] * base_weight[i];
    total += product;
  }
  return total;
}

/* The base times exp of the score; both are cut to what a size can be. */
static float bytes_of(double bytes, double score) {
  if (!(bytes > 1.0))
    bytes = 1.0;
  if (bytes > @most@)
    bytes = @most@;
  if (!(score > -@largest@))
    score = -@largest@;
  if (score > @largest@)
    score = @largest@;
  double power = score * @log2e@;
  power = power + @rounding@;
  power = power - @rounding@;
  double high = power * @high@, low = power * @low@;
  double rest = score - high;
  rest = rest - low;
  double total = taylor[TERMS - 1];
  for (int i = TERMS - 2; i >= 0; --i) {
    double product = total * rest;
    total = product + taylor[i];
  }
  double doubled = (double)((int64_t)1 << ((int)power + @shift@)) * @halved@;
  double factor = total * doubled;
  return (float)(bytes * factor);
}

void mlgo_policy_decide(const void *const *features, void *decision) {
  double x[INPUTS];
  int place = 0;
  for (int i = 0; i < FEATURES; ++i)
    for (int j = 0; j < feature_size[i]; ++j)
      if (feature_is_wide[i]) {
        int64_t value;
        memcpy(&value, (const char *)features[i] + (size_t)j * sizeof value, sizeof value);
        x[place++] = (double)value;
      } else {
        int32_t value;
        memcpy(&value, (const char *)features[i] + (size_t)j * sizeof value, sizeof value);
        x[place++] = (double)value;
      }
  double bytes = base(x);
  float answer = bytes_of(bytes, score(x));
  memcpy(decision, &answer, sizeof answer);
}
"""


def model_c(model: SizeModel) -> tuple[str, str]:
    """Return the texts of ``policy.c`` and ``policy.h``."""
    begin, end = about_source(
        {"name": model.name, "task": model.task, "digest": model.digest, "type": model.decision_type}
    )
    constants = {
        "FEATURES": str(len(model.features)),
        "INPUTS": str(model.inputs),
        "TREES": str(len(model.model.roots)),
        "TERMS": str(len(TAYLOR)),
    }
    numbers = {
        "bias": model.base.bias,
        "most": LARGEST_BASE,
        "largest": LARGEST_SCORE,
        "halved": 0.5**SHIFT,
        "log2e": LOG2E,
        "rounding": ROUNDING,
        "high": LN2_PARTS[0],
        "low": LN2_PARTS[1],
    }
    parts = (
        begin,
        enumerated(constants),
        *feature_tables(model.features),
        c_table("unsigned char", "feature_is_wide", [str(int(spec.type == "int64_t")) for spec in model.features]),
        c_table("double", "taylor", map(c_double, TAYLOR)),
        c_table("double", "base_weight", map(c_double, model.base.weights)),
        *model_source(model.model, model.inputs),
        filled(_DECIDE, {"shift": str(SHIFT), **{name: c_double(value) for name, value in numbers.items()}}),
        end,
    )
    return "".join(parts), HEADER
