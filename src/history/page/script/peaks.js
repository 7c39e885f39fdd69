// How many identities have peaked how high, on a logarithmic scale. peaks: ascending. A bar
// ends at the limit, and another begins there: none has both who is hit and who is not.
function drawPeaks(W, peaks, limit, who, what) {
  const H = 236, L = 56, B = 40, T = 34, R = 10;
  const lowest = Math.max(0.5, peaks[0] || 0.5);
  const highest = Math.max(lowest * 2, (peaks[peaks.length - 1] || 1) * 1.1);
  const count = Math.min(50, Math.max(12, Math.floor((W - L - R) / 17)));
  const part = (value) => Math.min(1, Math.max(0, Math.log(value / lowest) / Math.log(highest / lowest)));
  const x = (value) => L + part(value) * (W - L - R);
  const inner = Array.from({ length: count - 1 }, (_, n) => lowest * (highest / lowest) ** ((n + 1) / count));
  const edges = [0, ...inner, limit, Infinity].sort((a, b) => a - b);
  const bars = edges.slice(1).map((to, n) => ({ from: edges[n], to, count: below(peaks, to) - below(peaks, edges[n]) }))
    .filter((bar) => bar.count > 0);
  const top = Math.max(...bars.map((bar) => bar.count), 1);
  // One identity is visible beside thousands.
  const y = (n) => (0.06 + 0.94 * Math.log1p(n) / Math.log1p(top)) * (H - B - T);
  const svg = canvas(W, H, `How high the rates of ${whole(peaks.length)} ${who} peaked; both axes are logarithmic`);
  for (const bar of bars) {
    const isHit = bar.from >= limit, [left, right] = [x(bar.from), x(bar.to)];
    const width = Math.max(2, right - left - 2);
    const box = drawn("rect", {
      x: bar.to === limit ? right - 1 - width : left + 1, y: H - B - y(bar.count), width, height: y(bar.count), class: isHit ? "bar hit" : "bar",
    });
    box.append(drawn("title", {}, `${whole(bar.count)} peaked at ${rate(Math.max(bar.from, lowest))} to ${rate(Math.min(bar.to, highest))}: ` +
      (isHit ? "hit by the limit" : "not hit by the limit")));
    svg.append(box);
  }
  svg.append(drawn("line", { x1: L, x2: W - R, y1: H - B, y2: H - B, class: "axis" }));
  for (let power = Math.ceil(Math.log10(lowest)); 10 ** power <= highest; power += 1) {
    const at = x(10 ** power);
    svg.append(drawn("line", { x1: at, x2: at, y1: H - B, y2: H - B + 4, class: "axis" }),
      drawn("text", { x: at, y: H - B + 18, "text-anchor": at > W - 24 ? "end" : "middle" }, whole(10 ** power)));
  }
  for (const n of [1, 10, 100, 1000, 10000, 100000].filter((n) => n <= top)) {
    svg.append(drawn("text", { x: L - 6, y: H - B - y(n) + 4, "text-anchor": "end" }, whole(n)));
  }
  svg.append(drawn("text", { x: W - R, y: H - 6, "text-anchor": "end" }, `highest rate, ${what} (logarithmic)`));
  svg.append(drawn("text", { x: 4, y: 12 }, who + " (logarithmic)"));
  const at = x(limit), isRight = at > W / 2;
  svg.append(drawn("line", { x1: at, x2: at, y1: T - 14, y2: H - B, class: "limit" }),
    drawn("text", { x: isRight ? at - 6 : at + 6, y: T - 4, class: "limit-text", "text-anchor": isRight ? "end" : "start" }, `limit ${exactly(limit)}`));
  return svg;
}
