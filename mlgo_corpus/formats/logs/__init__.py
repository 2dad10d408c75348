"""Training logs: tensors, events, blocks, and the tasks that write them."""
