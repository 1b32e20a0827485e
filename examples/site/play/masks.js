// Rules of a few builders as (t, s) -> boolean; play.html draws them, tests/examples/test_site.py compares them with graphattn.
const build = {
  full: (n) => (t, s) => true,
  causal: (n) => (t, s) => s <= t,
  sliding_window: (n, w, causal = true, dilation = 1) => (t, s) => {
    const d = t - s, lo = causal ? 0 : -Math.floor((w - 1) / 2), hi = causal ? w - 1 : Math.floor(w / 2);
    return d % dilation === 0 && d / dilation >= lo && d / dilation <= hi; },
  global_tokens: (n, k) => (t, s) => t < k || s < k,
  sinks: (n, k) => (t, s) => s < k && s <= t,
  block_local: (n, b) => (t, s) => Math.floor(t / b) === Math.floor(s / b),
  sparse_strided: (n, p) => (t, s) => s <= t && (t - s < p || (t - s) % p === 0),
  prefix: (n, p) => (t, s) => s < p || s <= t,
  rows: (n, c) => (t, s) => Math.floor(t / c) === Math.floor(s / c),
  columns: (n, c) => (t, s) => t % c === s % c,
};
// What a builder's number is; without it there is none. The last two are of tokens that lie on a grid, row by row.
const number = { sliding_window: "window", global_tokens: "tokens", sinks: "sinks", block_local: "block", sparse_strided: "stride",
  prefix: "prefix", rows: "width of the grid", columns: "width of the grid" };
const call = {
  full: (n) => `full(${n})`,
  causal: (n) => `causal(${n})`,
  sliding_window: (n, w) => `sliding_window(${n}, ${w}, causal=True)`,
  block_local: (n, b) => `block_local(${n}, ${b}, causal=False)`,
  global_tokens: (n, k) => `global_tokens(${n}, range(${k}))`,
  rows: (n, c) => partition(n, c, `(1, ${c})`),
  columns: (n, c) => partition(n, c, `(${Math.ceil(n / c)}, 1)`),
};
// Cells of the grid; where the last row is not whole, of its tokens that are there.
function partition(n, c, cell) {
  const height = Math.ceil(n / c), grid = `window_partition((${height}, ${c}), ${cell})`;
  return height * c === n ? grid : `${grid}.subgraph(range(${n}))`; }
const text = (name, p, n) => `ga.graphs.${name in call ? call[name](n, p) : `${name}(${n}, ${p})`}`;
const mask = (n, rule) => Array.from({ length: n }, (_, t) => Array.from({ length: n }, (_, s) => rule(t, s)));
const join = (a, b, op) => a.map((r, t) => r.map((x, s) => op === "|" ? x || b[t][s] : op === "&" ? x && b[t][s] : x && !b[t][s]));
const product = (a, b) => a.map((r) => b[0].map((_, s) => r.some((x, k) => x && b[k][s])));
function reach(m, layers, residual = true) {
  const step = m.map((r, t) => r.map((x, s) => x || (residual && t === s)));
  let found = step; for (let i = 1; i < layers; i++) found = product(step, found); return found; }
const edges = (m) => m.flat().filter(Boolean).length;
const leaks = (m) => { for (let t = 0; t < m.length; t++) for (let s = t + 1; s < m.length; s++) if (m[t][s]) return [s, t]; return null; };
// What to say of the order: tokens of a grid have none, so that to read a later one there is no leak.
const onGrid = ["rows", "columns"];
function order(names, leak, graph, layers) {
  if (leak && names.some((name) => onGrid.includes(name)))
    return { words: "tokens read both ways, as in an image", check: "" };
  const words = leak ? `it leaks: token ${leak[1]} depends on the later token ${leak[0]}` : "no token depends on a later one";
  return { words, check: `assert ${leak ? "not " : ""}ga.leaks([${graph}] * ${layers}).ok` }; }
// The whole number of a field, within its bounds.
const within = (value, low, high) => Math.min(Math.max(Math.trunc(+value) || 0, low), high);
if (typeof module !== "undefined") module.exports = { build, number, text, mask, join, reach, edges, leaks, order, within };
