int use(int);
int sum(const int *);
static int leaf(int x) { return use(x) * 3 + use(x + 1); }
int calls(int x) {
  int both[2] = {leaf(x), leaf(x + 2)};
  return sum(both);
}
long pressure(const long *p, int n) {
  long a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6], h = p[7], i = p[8];
  long j = p[9], k = p[10], l = p[11], m = p[12], o = p[13], q = p[14], r = p[15], s = p[16], t = p[17];
  for (int z = 0; z < n; ++z) {
    a += b ^ z, b += c * a, c += d ^ b, d += e * c, e += f ^ d, f += g * e, g += h ^ f, h += i * g, i += j ^ h;
    j += k * i, k += l ^ j, l += m * k, m += o ^ l, o += q * m, q += r ^ o, r += s * q, s += t ^ r, t += a * s;
  }
  return a + b + c + d + e + f + g + h + i + j + k + l + m + o + q + r + s + t;
}
