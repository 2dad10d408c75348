"""A build under way, with compilers that embed bitcode and leave records."""
