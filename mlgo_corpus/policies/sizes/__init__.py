"""Models of native size: the same kind of artefact as a policy, from a function's features to its bytes."""
