"""Builds: what a build left on disk, and the record that is kept of its compiles and links."""
