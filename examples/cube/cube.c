static int cube_of(int x) { return x * x * x; }

int cube(int x) { return cube_of(x) + cube_of(x + 1); }
