"""Commands: cc1 options, edits, replay, link lines, build files."""
