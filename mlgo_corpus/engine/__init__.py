"""Engine: a map over worker processes, on this machine or a cluster."""
