"""Engine: a parallel map over worker processes, on this machine or a cluster."""
