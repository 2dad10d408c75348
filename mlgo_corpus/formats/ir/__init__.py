"""LLVM IR as text: functions, pipelines, features, costs."""
