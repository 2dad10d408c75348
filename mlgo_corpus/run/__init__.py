"""Run: processes, from one compiler to a pool of workers."""
