"""Running a build with compilers that embed bitcode and record their compiles."""
