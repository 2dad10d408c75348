#include <stdio.h>

int cube(int x);

static int twice(int x) { return 2 * cube(x); }

int main(int count, char **words) { return printf("%s: %d\n", words[0], twice(count)) < 0; }
