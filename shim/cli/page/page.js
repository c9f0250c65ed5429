"use strict";
// The page of `udnnmem report --format html`. DATA holds the runs: `report` is the JSON report as it is, `view` the iteration in
// columns (report_html.cpp says which). Everything is drawn from these on canvases that share one axis of time.
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const LEFT = 74, RIGHT = 10;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// ---- quantities -------------------------------------------------------------------------------------------------------
function bytes(n) {
  if (n === null || n === undefined) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let u = 0, v = Math.abs(n);
  while (v >= 1024 && u < 4) v /= 1024, ++u;
  return (n < 0 ? "-" : "") + (u ? v.toFixed(v < 10 ? 2 : 1) : v) + " " + units[u];
}
function time(ns) {
  if (ns === null || ns === undefined) return "-";
  const a = Math.abs(ns);
  if (a < 1e3) return Math.round(ns) + " ns";
  if (a < 1e6) return (ns / 1e3).toFixed(1) + " µs";
  if (a < 1e9) return (ns / 1e6).toFixed(a < 1e7 ? 2 : 1) + " ms";
  return (ns / 1e9).toFixed(2) + " s";
}
const count = (n) => n === null || n === undefined ? "-" : n.toLocaleString("en-US");
const rate = (r) => r ? (r / 1e9).toFixed(2) + " GB/s" : "-";
const percent = (x) => x === null || x === undefined ? "-" : (100 * x).toFixed(1) + " %";
const element = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };

// ---- tables: sorted by a click on their heading, long ones in pieces ---------------------------------------------------
// columns: {title, value(row), show(value,row), text}; pick(row, tr) makes rows clickable.
function table(node, columns, rows, sort, pick, piece = 100) {
  let by = sort, up = false, shown = piece;
  const fill = () => {
    const sorted = by < 0 ? rows : rows.slice().sort((a, b) => {
      const x = columns[by].value(a), y = columns[by].value(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
    });
    node.replaceChildren();
    const head = node.createTHead().insertRow();
    columns.forEach((c, i) => {
      const th = element("th", c.title, (c.text ? "text" : "") + (i === by ? " sorted" + (up ? " up" : "") : ""));
      th.onclick = () => { up = i === by ? !up : !!c.text; by = i; fill(); };
      head.append(th);
    });
    const body = node.createTBody();
    for (const row of sorted.slice(0, shown)) {
      const tr = body.insertRow();
      for (const c of columns) {
        const v = c.value(row), td = element("td", c.show ? c.show(v, row) : v, c.text ? "text" : "");
        if (c.text) td.title = td.textContent;
        tr.append(td);
      }
      if (pick) { tr.className = "pick"; tr.onclick = () => pick(row); tr.dataset.row = row.id; }
    }
    if (rows.length > shown) {
      const tr = body.insertRow(), td = element("td", `${count(rows.length - shown)} more: click to show`);
      td.colSpan = columns.length; tr.className = "more"; tr.append(td);
      tr.onclick = () => { shown += 10 * piece; fill(); };
    }
  };
  fill();
}

// ---- one run ------------------------------------------------------------------------------------------------------------
let run, view, from, to, chosen = -1, wanted = "", colouring = "";
const matches = (text) => wanted && text.toLowerCase().includes(wanted);

function unpack(v) {
  // Starts come as differences; names by number; access sets as one list with the ends of each op's part.
  const n = v.ops.duration.length;
  v.n = n;
  v.start = new Float64Array(n);
  for (let k = 0, at = 0; k < n; ++k) v.start[k] = at += v.ops.start[k];
  v.end = new Float64Array(n);
  for (let k = 0; k < n; ++k) v.end[k] = v.start[k] + v.ops.duration[k];
  v.name = (k) => v.names[v.ops.name[k]];
  v.range = (k) => v.ranges[v.ops.range[k]];
  const b = v.buffers, m = b.bytes.length;
  v.m = m;
  v.label = (i) => v.labels[b.label[i]] || "buffer " + i;
  // Live bytes at each op, from the buffers' lives.
  const live = new Float64Array(n + 1);
  for (let i = 0; i < m; ++i) if (b.first[i] >= 0) live[b.first[i]] += b.bytes[i], live[b.last[i] + 1] -= b.bytes[i];
  v.live = new Float64Array(n);
  let sum = 0;
  v.peak = 0; v.peak_op = 0;
  for (let k = 0; k < n; ++k) {
    sum += live[k];
    v.live[k] = sum + v.ops.workspace[k];
    if (v.live[k] > v.peak) v.peak = v.live[k], v.peak_op = k;
  }
  // An interval of a buffer in time.
  v.born = (i) => b.persistent[i] ? 0 : v.start[b.first[i]];
  v.dies = (i) => b.persistent[i] ? v.length : v.end[b.last[i]];
  // Who names a buffer.
  v.uses = Array.from({length: m}, () => []);
  for (let k = 0, at = 0; k < n; ++k)
    for (; at < v.ops.access_end[k]; ++at) v.uses[v.ops.access[at]].push(k);
  v.away_of = new Map();
  v.away.buffer.forEach((i, j) => { if (!v.away_of.has(i)) v.away_of.set(i, []); v.away_of.get(i).push([v.away.from[j], v.away.to[j], v.away.dropped[j]]); });
  // Bytes on the device over time: steps of (time, change).
  const steps = [];
  for (let k = 0; k < n; ++k) steps.push([v.start[k], v.live[k] - (k ? v.live[k - 1] : 0)]);
  v.away.buffer.forEach((i, j) => steps.push([v.away.from[j], -b.bytes[i]], [v.away.to[j], b.bytes[i]]));
  steps.sort((x, y) => x[0] - y[0]);
  v.resident = [];
  let r = 0;
  for (const [t, change] of steps) { r += change; v.resident.push([t, r]); }
  v.streams = [...new Set(v.ops.stream)].sort((x, y) => x - y);
  v.lanes = v.streams.slice(0, 6).map((s) => ({title: v.streams.length > 1 ? "stream " + s : "compute", ops: []}));
  const lane_of = new Map(v.streams.map((s, i) => [s, Math.min(i, v.lanes.length - 1)]));
  if (v.streams.length > v.lanes.length) v.lanes[v.lanes.length - 1].title = "other streams";
  for (let k = 0; k < n; ++k) v.lanes[lane_of.get(v.ops.stream[k])].ops.push(k);
  v.kind = (j) => v.kinds[v.moves.kind[j]];
  v.link = {in: [], out: [], stall: [], marks: []};
  const lists = {fetch: v.link.in, evict: v.link.out, clean: v.link.out, stall: v.link.stall};
  v.moves.kind.forEach((_, j) => (lists[v.kind(j)] || v.link.marks).push(j));
}

// ---- drawing ------------------------------------------------------------------------------------------------------------
function canvas(id, height) {
  const c = $(id), ratio = window.devicePixelRatio || 1, width = c.parentElement.clientWidth;
  c.style.height = height + "px";
  c.width = Math.round(width * ratio); c.height = Math.round(height * ratio);
  const g = c.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = "11px system-ui,sans-serif";
  return [g, width, height];
}
const nice = (x) => { const p = Math.pow(10, Math.floor(Math.log10(x))); const q = x / p; return (q <= 1 ? 1 : q <= 2 ? 2 : q <= 5 ? 5 : 10) * p; };
const nice_bytes = (x) => { let p = 1; while (p * 1024 <= x) p *= 1024; return p * [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].find((q) => q * p >= x); };
let width = 0, x_of = () => 0, colours = {};

function grid(g, w, h, top, bottom, y_of, most, lines) {
  g.strokeStyle = colours.line; g.fillStyle = colours.soft; g.lineWidth = 1; g.textAlign = "right"; g.textBaseline = "middle";
  const step = nice_bytes(Math.max(1, most / lines));
  for (let y = 0; y <= most * 1.0001; y += step) {
    const py = Math.round(y_of(y)) + .5;
    g.beginPath(); g.moveTo(LEFT, py); g.lineTo(w - RIGHT, py); g.stroke();
    g.fillText(bytes(y), LEFT - 6, py);
  }
}
function axis(g, w, y) {
  const step = nice((to - from) / Math.max(2, (w - LEFT - RIGHT) / 110));
  g.fillStyle = colours.soft; g.strokeStyle = colours.line; g.textAlign = "center"; g.textBaseline = "top";
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    const x = Math.round(x_of(t)) + .5;
    g.beginPath(); g.moveTo(x, y - 4); g.lineTo(x, y); g.stroke();
    g.fillText(time(Math.round(t)), x, y + 2);
  }
}
function clip(g, w, h) { g.save(); g.beginPath(); g.rect(LEFT, 0, w - LEFT - RIGHT, h); g.clip(); }

function draw_memory() {
  const [g, w, h] = canvas("memory", 170), top = 18, bottom = 6, budget = run.report.budget_bytes || 0;
  const most = Math.max(v_most(), budget <= 2 * view.peak ? budget : 0) * 1.06 || 1;
  const y_of = (b) => h - bottom - b / most * (h - top - bottom);
  grid(g, w, h, top, bottom, y_of, most, 4);
  clip(g, w, h);
  // Live bytes: the most of each pixel, so that a peak is never lost.
  const columns = new Float64Array(Math.ceil(w)).fill(-1);
  let k = lower(view.start, from);
  if (k > 0) --k;
  for (; k < view.n && view.start[k] <= to; ++k) {
    const a = Math.max(0, Math.floor(x_of(view.start[k]))), b = Math.min(columns.length - 1, Math.ceil(x_of(k + 1 < view.n ? view.start[k + 1] : view.length)));
    for (let x = a; x <= b; ++x) if (view.live[k] > columns[x]) columns[x] = view.live[k];
  }
  g.beginPath(); g.moveTo(LEFT, y_of(0));
  for (let x = LEFT; x < w - RIGHT; ++x) g.lineTo(x, y_of(Math.max(0, columns[x])));
  g.lineTo(w - RIGHT, y_of(0)); g.closePath();
  g.globalAlpha = .28; g.fillStyle = view.away.buffer.length ? colours.host : colours.device; g.fill(); g.globalAlpha = 1;
  g.strokeStyle = colours.live; g.lineWidth = 1.2;
  g.beginPath(); for (let x = LEFT; x < w - RIGHT; ++x) g.lineTo(x, y_of(Math.max(0, columns[x]))); g.stroke();
  if (view.away.buffer.length) {  // what of it was on the device
    g.beginPath(); g.moveTo(LEFT, y_of(0));
    let last = 0;
    for (const [t, r] of view.resident) { const x = x_of(t); if (x >= LEFT - 1) g.lineTo(x, y_of(last)), g.lineTo(x, y_of(r)); last = r; if (x > w) break; }
    g.lineTo(w - RIGHT, y_of(last)); g.lineTo(w - RIGHT, y_of(0)); g.closePath();
    g.globalAlpha = .55; g.fillStyle = colours.device; g.fill(); g.globalAlpha = 1;
  }
  const peak_x = x_of(view.start[view.peak_op]);
  if (peak_x >= LEFT && peak_x <= w - RIGHT) {
    g.fillStyle = colours.live; g.beginPath(); g.arc(peak_x, y_of(view.peak), 3, 0, 7); g.fill();
    g.textAlign = peak_x > w - 220 ? "right" : "left"; g.textBaseline = "bottom";
    g.fillText(`peak live ${bytes(view.peak)}`, peak_x + (peak_x > w - 220 ? -7 : 7), y_of(view.peak) - 2);
  }
  if (budget) {
    const y = y_of(Math.min(budget, most));
    g.strokeStyle = g.fillStyle = colours.stall; g.setLineDash([7, 4]); g.lineWidth = 1.5;
    if (budget <= most) { g.beginPath(); g.moveTo(LEFT, y); g.lineTo(w - RIGHT, y); g.stroke(); }
    g.setLineDash([]); g.textAlign = "left"; g.textBaseline = "bottom";
    g.fillText(`budget ${bytes(budget)}${budget > most ? ", above all of this" : ""}`, LEFT + 6, budget <= most && y > 20 ? y - 2 : 16);
  }
  g.restore();
}
const v_most = () => Math.max(view.placed, view.peak);
const lower = (list, t) => { let a = 0, b = list.length; while (a < b) { const m = (a + b) >> 1; if (list[m] < t) a = m + 1; else b = m; } return a; };

const hues = [212, 28, 150, 275, 340, 188, 95, 245, 55, 310, 10, 128];
const hue = (text) => { let h = 2166136261; for (let i = 0; i < text.length; ++i) h = Math.imul(h ^ text.charCodeAt(i), 16777619); return hues[(h >>> 8) % hues.length]; };
const name_colour = new Map();
// Some name each op apart: "conv_forward_17". Their kind is what is before the number.
const stem = (n) => /_v\d+$/.test(n) ? n : n.replace(/[_.]?\d+$/, "") || n;   // "conv_3" is a conv; a version is part of a name
const colour_of_name = (n) => { if (!name_colour.has(n)) name_colour.set(n, `hsl(${hue(n)} 52% 55%)`); return name_colour.get(n); };
const phases = ["other", "forward", "backward", "update"];
const colour_of_op = (k) => colouring === "phase" ? colours[phases[view.ops.phase[k]]] : colouring === "range" ? (view.range(k) ? colour_of_name(view.range(k)) : colours.other) : colour_of_name(stem(view.name(k)));
function colour_of_buffer(i) {
  const b = view.buffers;
  if (colouring === "idle") { const share = b.idle[i] / Math.max(1, ideal_life(i)); return `hsl(${Math.round(212 - 180 * share)} 60% ${Math.round(58 - 6 * share)}%)`; }
  if (colouring === "phase") return b.persistent[i] ? colours.persistent : colours[phases[view.ops.phase[b.first[i]]]];
  return b.persistent[i] ? colours.persistent : b.accesses[i] ? (i % 2 ? colours.device : colours.device2) : colours.other;
}
const ideal_life = (i) => view.buffers.persistent[i] ? view.ideal : view.buffers.idle[i] + view.uses[i].reduce((s, k) => s + view.ops.duration[k], 0);

let bands_y = () => 0;
function draw_bands() {
  const [g, w, h] = canvas("bands", 330), top = 8, bottom = 4, most = v_most() * 1.03 || 1, b = view.buffers;
  bands_y = (v) => h - bottom - v / most * (h - top - bottom);
  grid(g, w, h, top, bottom, bands_y, most, 6);
  clip(g, w, h);
  const box = (i, t0, t1, colour) => {
    const x0 = Math.max(LEFT, x_of(t0)), x1 = Math.min(w - RIGHT, x_of(t1));
    if (x1 <= x0) return;
    const y1 = bands_y(b.place[i]), y0 = bands_y(b.place[i] + b.bytes[i]), tall = y1 - y0;
    g.fillStyle = colour;
    g.fillRect(x0, y0, Math.max(x1 - x0, .6), Math.max(tall - (tall > 3 ? .6 : 0), .4));
  };
  for (let i = 0; i < view.m; ++i) {
    if (b.first[i] < 0 || !b.bytes[i]) continue;
    const t0 = view.born(i), t1 = view.dies(i);
    if (t1 < from || t0 > to) continue;
    g.globalAlpha = wanted && !matches(view.label(i)) ? .18 : 1;
    box(i, t0, t1, colour_of_buffer(i));
    const away = view.away_of.get(i);
    if (away) for (const [a, z, dropped] of away) if (z >= from && a <= to) box(i, a, z, dropped ? colours.dropped : colours.host);
    g.globalAlpha = 1;
  }
  for (let i = 0; i < view.m; ++i) {  // names where there is room
    if (b.first[i] < 0) continue;
    const x0 = Math.max(LEFT, x_of(view.born(i))), x1 = Math.min(w - RIGHT, x_of(view.dies(i)));
    const tall = bands_y(b.place[i]) - bands_y(b.place[i] + b.bytes[i]);
    if (tall < 13 || x1 - x0 < 70) continue;
    g.fillStyle = "#fff"; g.textAlign = "left"; g.textBaseline = "middle";
    label(g, `${view.label(i)}  ${bytes(b.bytes[i])}`, x0 + 5, bands_y(b.place[i] + b.bytes[i] / 2), x1 - x0 - 10);
  }
  if (chosen >= 0 && b.first[chosen] >= 0) {
    const x0 = x_of(view.born(chosen)), x1 = x_of(view.dies(chosen)), y0 = bands_y(b.place[chosen] + b.bytes[chosen]), y1 = bands_y(b.place[chosen]);
    g.strokeStyle = colours.mark; g.lineWidth = 2; g.strokeRect(x0, y0 - 1, Math.max(2, x1 - x0), Math.max(2, y1 - y0) + 2);
    g.fillStyle = colours.mark;
    for (const k of view.uses[chosen]) g.fillRect(x_of(view.start[k]), y0 - 5, Math.max(1.5, x_of(view.end[k]) - x_of(view.start[k])), 4);
  }
  g.restore();
}
function label(g, text, x, y, room) {
  const fits = Math.floor(room / 6);
  if (fits >= 4) g.fillText(text.length > fits ? text.slice(0, fits - 1) + "…" : text, x, y, room);
}

let lane_rows = [];
function draw_lanes() {
  const tall = 24, pad = 4;
  lane_rows = view.lanes.map((lane) => ({title: lane.title, items: lane.ops, start: (k) => view.start[k], end: (k) => view.end[k], colour: colour_of_op, name: (k) => view.name(k), op: true, sorted: true}));
  const moves = (title, items, colour) => lane_rows.push({title, items, start: (j) => view.moves.start[j], end: (j) => view.moves.end[j], colour: () => colour, name: (j) => view.moves.buffer[j] >= 0 ? view.label(view.moves.buffer[j]) : ""});
  if (view.observed) {
    moves("link in", view.link.in, colours.in); moves("link out", view.link.out, colours.out); moves("waits", view.link.stall, colours.stall);
    if (view.link.marks.length) moves("others", view.link.marks, colours.mark);
  }
  const [g, w] = canvas("lanes", lane_rows.length * (tall + pad) + 26);
  lane_rows.forEach((row, r) => {
    const y = r * (tall + pad) + 4;
    row.y = y; row.h = tall;
    g.fillStyle = colours.soft; g.textAlign = "right"; g.textBaseline = "middle";
    g.fillText(row.title, LEFT - 6, y + tall / 2);
    g.fillStyle = colours.card; g.fillRect(LEFT, y, w - LEFT - RIGHT, tall);
    clip(g, w, 1e5);
    // What is wider than a pixel is a box; the rest is how much of each pixel it fills, in the colour of the longest of them.
    const fill = new Float64Array(Math.ceil(w) + 1), most = new Float64Array(fill.length), tint = new Array(fill.length);
    const boxes = [];
    for (const i of row.items) {
      if (row.end(i) < from || row.start(i) > to) continue;
      const x0 = x_of(row.start(i)), x1 = x_of(row.end(i));
      if (x1 - x0 >= 1.5) boxes.push([i, x0, x1]);
      else if (x0 >= 0 && x0 < fill.length - 1) {
        const x = Math.floor(x0), inside = Math.min(x1, x + 1) - x0;
        const c = wanted && !matches(row.name(i)) ? "" : row.colour(i);
        const take = (at, part) => {
          fill[at] += part;
          if (part > 0 && (tint[at] === undefined || (c && (!tint[at] || part > most[at])))) tint[at] = c, most[at] = part;
        };
        take(x, inside); take(x + 1, x1 - x0 - inside);
      }
    }
    for (let x = 0; x < fill.length; ++x) {
      if (!fill[x]) continue;
      const part = Math.max(2, Math.min(1, fill[x]) * tall);
      g.globalAlpha = tint[x] ? 1 : .18;
      g.fillStyle = tint[x] || colours.other; g.fillRect(x, y + tall - part, 1, part);
    }
    for (const [i, x0, x1] of boxes) {
      g.globalAlpha = wanted && !matches(row.name(i)) ? .18 : 1;
      g.fillStyle = row.colour(i); g.fillRect(x0, y, Math.max(1, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), tall);
      if (x1 - x0 > 34) { g.fillStyle = "#fff"; g.textAlign = "left"; label(g, row.name(i), Math.max(x0, LEFT) + 4, y + tall / 2, Math.min(x1, w - RIGHT) - Math.max(x0, LEFT) - 8); }
    }
    g.globalAlpha = 1;
    g.restore();
  });
  axis(g, w, lane_rows.length * (tall + pad) + 8);
}

function draw() {
  if (!view) return;
  colours = Object.fromEntries(["line", "soft", "card", "device", "device2", "host", "dropped", "persistent", "stall", "in", "out", "live", "forward", "backward", "update", "other", "mark"].map((n) => [n, css(n)]));
  width = $("charts").clientWidth;
  x_of = (t) => LEFT + (t - from) / (to - from) * (width - LEFT - RIGHT);
  draw_memory(); draw_bands(); draw_lanes();
}
function legend() {
  const items = colouring === "phase" ? [["forward", "forward"], ["backward", "backward"], ["update", "update"], ["other", "other ops"], ["persistent", "outlives the iteration"]]
    : colouring === "idle" ? [["device", "always in use"], ["host", "nearly always idle"]]
    : [["device", "buffer of the iteration"], ["persistent", "outlives the iteration"]];
  if (view.observed) items.push(["host", colouring === "idle" ? "evicted to the host" : "on the host"], ["in", "copied in"], ["out", "copied out"], ["stall", "a launch waited"]);
  if (view.observed && view.link.marks.length) items.push(["mark", "given up without a copy, and other events"]);
  if (view.observed && view.away.dropped.some((d) => d)) items.push(["dropped", "dropped, to be computed again"]);
  $("legend").replaceChildren(...items.map(([c, text]) => { const s = element("span", text), i = element("i"); i.style.background = `var(--${c})`; s.prepend(i); return s; }));
}

// ---- moving about -------------------------------------------------------------------------------------------------------
function zoom(a, b) {
  const least = Math.max(view.length / 1e6, 100);
  if (b - a < least) { const m = (a + b) / 2; a = m - least / 2; b = m + least / 2; }
  const span = Math.min(b - a, view.length);
  from = Math.max(0, Math.min(a, view.length - span)); to = from + span;
  schedule();
}
let asked = false;
const schedule = () => { if (!asked) asked = true, requestAnimationFrame(() => { asked = false; draw(); }); };
const scale = (factor, at = (from + to) / 2) => zoom(at - (at - from) * factor, at + (to - at) * factor);
const time_at = (x) => from + (x - LEFT) / (width - LEFT - RIGHT) * (to - from);

function under(target, x, y) {
  const t = time_at(x);
  if (target === $("lanes")) {
    const row = lane_rows.find((r) => y >= r.y && y < r.y + r.h);
    if (!row) return null;
    const slack = (to - from) / (width - LEFT - RIGHT) * 1.5;
    const i = row.items.find((j) => row.start(j) <= t + slack && row.end(j) >= t - slack);
    return i === undefined ? null : row.op ? {op: i} : {move: i};
  }
  if (target === $("bands")) {
    const b = view.buffers;
    for (let i = view.m - 1; i >= 0; --i)
      if (b.first[i] >= 0 && view.born(i) <= t && view.dies(i) >= t && bands_y(b.place[i]) >= y && bands_y(b.place[i] + b.bytes[i]) <= y) return {buffer: i};
    return null;
  }
  if (target === $("memory")) { const k = lower(view.start, t) - 1; return k >= 0 ? {live: k} : null; }
  return null;
}
const op_text = (k) => k < 0 ? "none" : `op ${k} (${view.name(k)})`;
function gap_text(i) {
  const b = view.buffers;
  if (!b.gap[i]) return "never idle";
  const after = b.gap_after[i], before = b.gap_before[i];
  return `idle ${time(b.gap[i])} ` + (after < 0 && before < 0 ? "all its life" : after < 0 ? `until ${op_text(before)}` : before < 0 ? `after ${op_text(after)}` : `from ${op_text(after)} to ${op_text(before)}${before <= after ? " of the next iteration" : ""}`);
}
function buffer_text(i) {
  const b = view.buffers;
  return `${view.label(i)}\n${bytes(b.bytes[i])} (${count(b.bytes[i])} bytes), ` + (b.persistent[i] ? "outlives the iteration" : `ops ${b.first[i]} to ${b.last[i]}`) +
    `\nnamed by ${count(b.accesses[i])} ops; ${gap_text(i)}` + (b.evictions[i] || b.fetches[i] ? `\nevicted ${b.evictions[i]} times, fetched ${b.fetches[i]} times here` : "");
}
function text_of(hit) {
  if (hit.op !== undefined) {
    const k = hit.op, f = view.ops.flops[k];
    const used = view.ops.access.slice(k ? view.ops.access_end[k - 1] : 0, view.ops.access_end[k]);
    return `${view.name(k)}\nop ${k}, ${time(view.ops.duration[k])}, at ${time(view.start[k])}` + (view.range(k) ? `\nin ${view.range(k)}` : "") + (f ? `\n${(f / 1e9).toPrecision(4)} GFLOP, ${(f / Math.max(1, view.ops.duration[k]) / 1e3).toPrecision(3)} TFLOP/s` : "") +
      `\n${used.length} buffers, ${bytes(used.reduce((s, i) => s + view.buffers.bytes[i], 0))}; live ${bytes(view.live[k])}`;
  }
  if (hit.move !== undefined) {
    const j = hit.move, d = view.moves.end[j] - view.moves.start[j], n = view.moves.bytes[j];
    return `${view.kind(j)} ${view.moves.buffer[j] >= 0 ? view.label(view.moves.buffer[j]) : "(memory outside the iteration)"}\n${bytes(n)}, ${time(d)}${n && d && view.kind(j) !== "stall" ? `, ${rate(n / d * 1e9)}` : ""}`;
  }
  if (hit.buffer !== undefined) return buffer_text(hit.buffer);
  return `${time(view.start[hit.live])}: ${bytes(view.live[hit.live])} live\n${op_text(hit.live)}`;
}
function choose(i, show) {
  chosen = i;
  const box = $("chosen");
  box.hidden = i < 0;
  if (i >= 0) {
    const b = view.buffers, uses = view.uses[i];
    box.replaceChildren(element("b", view.label(i)), element("p", buffer_text(i).split("\n").slice(1).join("; ")),
      element("p", "named by " + uses.slice(0, 30).map(op_text).join(", ") + (uses.length > 30 ? ` and ${uses.length - 30} more` : "")));
    if (show && b.first[i] >= 0) { const t0 = view.born(i), t1 = view.dies(i), pad = Math.max((t1 - t0) * .15, view.length / 1000); zoom(t0 - pad, t1 + pad); $("charts").scrollIntoView({block: "nearest"}); }
  }
  document.querySelectorAll("#buffers-table tr").forEach((tr) => tr.classList.toggle("chosen", tr.dataset.row === String(i)));
  schedule();
}
function watch() {
  let down = null;
  const charts = $("charts"), tip = $("tip"), brush = $("brush");
  const place = (e) => e.clientX - charts.getBoundingClientRect().left;
  charts.onwheel = (e) => { if (e.ctrlKey || e.metaKey || e.altKey) { e.preventDefault(); scale(e.deltaY > 0 ? 1.25 : .8, time_at(place(e))); } };
  charts.onmousedown = (e) => { if (e.button === 0) down = {x: place(e), from, to, move: e.shiftKey, target: e.target}; e.preventDefault(); };
  charts.onmousemove = (e) => {
    if (down) return;
    const box = e.target.getBoundingClientRect(), hit = under(e.target, place(e), e.clientY - box.top);
    tip.hidden = !hit;
    if (!hit) return;
    tip.textContent = text_of(hit);
    tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
  };
  charts.onmouseleave = () => { tip.hidden = true; };
  addEventListener("mousemove", (e) => {
    if (!down) return;
    tip.hidden = true;
    const x = place(e);
    if (down.move) { const t = (down.x - x) / (width - LEFT - RIGHT) * (down.to - down.from); return zoom(down.from + t, down.to + t); }
    brush.hidden = Math.abs(x - down.x) < 4;
    brush.style.left = Math.max(LEFT, Math.min(x, down.x)) + "px";
    brush.style.width = Math.min(width - RIGHT, Math.max(x, down.x)) - Math.max(LEFT, Math.min(x, down.x)) + "px";
  });
  addEventListener("mouseup", (e) => {
    if (!down) return;
    const x = place(e), was = down;
    down = null; brush.hidden = true;
    if (was.move) return;
    if (Math.abs(x - was.x) >= 4) return zoom(time_at(Math.min(x, was.x)), time_at(Math.max(x, was.x)));
    const hit = under(was.target, x, e.clientY - was.target.getBoundingClientRect().top);
    choose(hit && hit.buffer !== undefined ? hit.buffer : hit && hit.move !== undefined ? view.moves.buffer[hit.move] : -1);
  });
  charts.ondblclick = () => zoom(0, view.length);
  $("zoom-in").onclick = () => scale(.5); $("zoom-out").onclick = () => scale(2); $("zoom-all").onclick = () => zoom(0, view.length);
  addEventListener("keydown", (e) => {
    if (!view || /INPUT|SELECT/.test(e.target.tagName)) return;
    const step = (to - from) / 4;
    ({"+": () => scale(.5), "-": () => scale(2), "0": () => zoom(0, view.length), ArrowLeft: () => zoom(from - step, to - step), ArrowRight: () => zoom(from + step, to + step), Escape: () => choose(-1)}[e.key] || (() => 0))();
  });
  $("colour").onchange = (e) => { colouring = e.target.value; legend(); draw(); };
  $("search").oninput = (e) => {
    wanted = e.target.value.trim().toLowerCase();
    let b = 0, o = 0;
    if (wanted) { for (let i = 0; i < view.m; ++i) b += matches(view.label(i)); for (let k = 0; k < view.n; ++k) o += matches(view.name(k)); }
    $("found").textContent = wanted ? `${count(b)} buffers, ${count(o)} ops` : "";
    tables(); schedule();
  };
  addEventListener("resize", () => { schedule(); draw_run(); });
  const paper = (on) => { document.documentElement.classList.toggle("paper", on); draw(); draw_run(); };
  addEventListener("beforeprint", () => paper(true)); addEventListener("afterprint", () => paper(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw(); draw_run(); });
}

// ---- figures and tables -------------------------------------------------------------------------------------------------
const FIGURES = [["budget_bytes", "budget", bytes], ["peak_live_bytes", "peak live", bytes], ["peak_resident_bytes", "peak on the device", bytes], ["peak_host_bytes", "peak on the host", bytes],
  ["bytes_in", "moved in", bytes], ["bytes_out", "moved out", bytes], ["evictions", "evictions", count], ["clean_evictions", "of them clean", count], ["drops", "buffers dropped", count], ["replays", "of them computed again", count], ["stalls", "launches that waited", count], ["stall_ns", "they waited", time],
  ["ops", "ops", count], ["ideal_ns", "an iteration, all resident", time], ["iteration_ns", "an iteration as it ran", time], ["eta_ideal", "of the speed, all resident", percent], ["eta_bound", "of what any moving can reach", percent], ["planned_ns", "an iteration by plan", time], ["planned_iterations", "iterations by plan", count], ["wall_ns", "ran for", time]];
function figures() {
  const r = run.report;
  const boxes = FIGURES.filter(([f]) => r[f] !== null && r[f] !== undefined && (r[f] !== 0 || f === "peak_live_bytes" || (f === "stall_ns" && r.pid))).map(([f, title, show]) => {
    const d = element("div"), b = element("b", show(r[f]));
    b.dataset.figure = f; b.dataset.value = r[f]; b.title = count(r[f]);
    d.append(b, element("span", title));
    return d;
  });
  if (r.budget_bytes && r.peak_live_bytes > r.budget_bytes) { const d = element("div"); d.append(element("b", (r.peak_live_bytes / r.budget_bytes).toFixed(2) + " ×"), element("span", "peak live / budget")); boxes.push(d); }
  $("figures").replaceChildren(...boxes);
  const notes = [];
  if (r.damage) notes.push(`The trace is ${r.damage}.`);
  if (r.ended === false && r.pid && !r.damage) notes.push("The program was killed, or still ran: figures of its last second may be missing.");
  if (r.over_budget) notes.push(`The budget had to be exceeded ${count(r.over_budget)} times: raise it, or make the batch smaller.`);
  if (r.events_dropped) notes.push(`${count(r.events_dropped)} events were not recorded; the figures count them.`);
  for (const o of r.out_of_memory || []) notes.push(o.text);
  if (r.pid && !run.view) notes.push(r.searched ? `No iteration was found: nothing repeats in ${count(r.searched)} ops.` : r.iteration ? "This run's iteration is left out of the page to keep it small: a page of this trace alone shows it." : "No iteration was recorded.");
  $("notes").replaceChildren(...notes.map((n) => element("p", n)));
}
function tables() {
  const v = view, b = v.buffers;
  const all = Array.from({length: v.m}, (_, id) => ({id})).filter(({id}) => !wanted || matches(v.label(id)));
  const columns = [
    {title: "buffer", value: (r) => v.label(r.id), text: true}, {title: "bytes", value: (r) => b.bytes[r.id], show: bytes},
    {title: "bytes × idle", value: (r) => b.bytes[r.id] * b.idle[r.id], show: (x) => bytes(Math.round(x / 1e9)) + "·s"}, {title: "idle", value: (r) => b.idle[r.id], show: time},
    {title: "ops", value: (r) => b.accesses[r.id]}, {title: "life", value: (r) => b.first[r.id], show: (x, r) => b.persistent[r.id] ? "all" : x < 0 ? "-" : `${x} to ${b.last[r.id]}`}];
  if (v.observed) columns.push({title: "evicted", value: (r) => b.evictions[r.id]}, {title: "fetched", value: (r) => b.fetches[r.id]});
  columns.push({title: "longest idle", value: (r) => b.gap[r.id], show: (x, r) => gap_text(r.id), text: true});
  table($("buffers-table"), columns, all, 2, (r) => choose(r.id, true));
  $("buffers").hidden = false;

  const sums = new Map();
  for (let k = 0; k < v.n; ++k) {
    if (wanted && !matches(v.name(k))) continue;
    const n = stem(v.name(k)), s = sums.get(n) || {name: n, ops: 0, ns: 0, flops: 0, bytes: 0};
    s.ops++; s.ns += v.ops.duration[k]; s.flops += v.ops.flops[k];
    for (let a = k ? v.ops.access_end[k - 1] : 0; a < v.ops.access_end[k]; ++a) s.bytes += b.bytes[v.ops.access[a]];
    sums.set(n, s);
  }
  table($("ops-table"), [{title: "op", value: (s) => s.name, text: true}, {title: "times", value: (s) => s.ops, show: count}, {title: "time", value: (s) => s.ns, show: time}, {title: "share", value: (s) => s.ns / Math.max(1, v.ideal), show: percent},
    {title: "each", value: (s) => s.ns / s.ops, show: time}, {title: "buffers named", value: (s) => s.bytes, show: bytes}, {title: "TFLOP/s", value: (s) => s.ns ? s.flops / s.ns / 1e3 : 0, show: (x) => x ? x.toPrecision(3) : "-"}], [...sums.values()], 2);
  $("ops").hidden = false;
}
// Why a buffer went: on a miss somebody waited while it went, else it went ahead of need; and when it is wanted again.
function evictions() {
  const v = view, rows = [], stalls = v.link.stall.map((j) => [v.moves.start[j], v.moves.end[j], v.moves.buffer[j]]);
  v.moves.kind.forEach((_, j) => {
    const kind = v.kind(j), i = v.moves.buffer[j];
    if (kind !== "evict" && kind !== "evict_clean") return;
    const t = v.moves.start[j], waiter = stalls.find(([a, z]) => a <= t && z >= t);
    const uses = i >= 0 ? v.uses[i] : [], next = uses.find((k) => v.start[k] >= t), last = uses.filter((k) => v.start[k] < t).pop();
    rows.push({id: i, j, kind, t, i, waiter, next, last});
  });
  $("evicted").hidden = !v.observed;
  if (!v.observed) return;
  const misses = rows.filter((r) => r.waiter).length, clean = rows.filter((r) => r.kind === "evict_clean").length;
  $("evicted-caption").textContent = rows.length ? `${count(rows.length)} evictions while this iteration was watched, ${count(misses)} of them while a launch waited, ${count(clean)} with nothing to copy. The iteration is watched while it is learned.` : "Nothing was evicted while this iteration was watched.";
  table($("evicted-table"), [{title: "at", value: (r) => r.t, show: time}, {title: "buffer", value: (r) => r.i < 0 ? "other memory" : v.label(r.i), text: true}, {title: "bytes", value: (r) => v.moves.bytes[r.j] || (r.i >= 0 ? v.buffers.bytes[r.i] : 0), show: bytes},
    {title: "took", value: (r) => v.moves.end[r.j] - v.moves.start[r.j], show: time}, {title: "copied", value: (r) => r.kind === "evict" ? "yes" : "clean", text: true},
    {title: "for", value: (r) => r.waiter ? `a launch that waited for ${r.waiter[2] >= 0 ? v.label(r.waiter[2]) : "other memory"}` : "room ahead of need", text: true},
    {title: "why this one", value: (r) => r.i < 0 ? "" : (r.last === undefined ? "not used yet" : `last used by ${op_text(r.last)}`) + (r.next === undefined ? ", not again in this iteration" : `, next by ${op_text(r.next)} ${time(v.start[r.next] - r.t)} later`), text: true}],
    rows, -1, (r) => choose(r.i, true));
}
function draw_run() {
  const bins = run && run.bins;
  $("whole").hidden = !bins;
  if (!bins) return;
  const [g, w, h] = canvas("run-chart", 150), n = bins.in.length, most = Math.max(1, ...bins.in, ...bins.out), middle = 62;
  const x = (i) => LEFT + i / n * (w - LEFT - RIGHT), bar = (w - LEFT - RIGHT) / n;
  g.fillStyle = css("soft"); g.textAlign = "right"; g.textBaseline = "middle";
  g.fillText("in", LEFT - 6, 30); g.fillText("out", LEFT - 6, 92); g.fillText("waits", LEFT - 6, 124);
  for (let i = 0; i < n; ++i) {
    g.fillStyle = css("in"); const a = bins.in[i] / most * 54; g.fillRect(x(i), middle - a, bar, a);
    g.fillStyle = css("out"); const b = bins.out[i] / most * 50; g.fillRect(x(i), middle + 1, bar, b);
    g.fillStyle = css("stall"); g.globalAlpha = Math.min(1, bins.stall[i] / (bins.length / n)); g.fillRect(x(i), 117, bar, 14); g.globalAlpha = 1;
  }
  g.fillStyle = css("soft"); g.textBaseline = "top";
  for (let i = 0; i <= 4; ++i) { g.textAlign = i === 4 ? "right" : i ? "center" : "left"; g.fillText(time(bins.length * i / 4), x(n * i / 4), 135); }
  $("whole-caption").textContent = `Bytes moved and launches that waited, in ${n} stretches of ${time(bins.length / n)}; the tallest bar is ${rate(most / (bins.length / n) * 1e9)}. ` +
    Object.entries(run.report.events).filter(([, c]) => c).map(([k, c]) => `${count(c)} ${k}`).join(", ") + ".";
}
function show_plan() {
  const r = run.report, sequences = r.sequences || [];
  $("plan").hidden = !sequences.length;
  if (!sequences.length) return;
  const at = (title, value, show) => ({title, value, show}), text = (title, value) => ({title, value, text: true}), some = (ns) => ns ? time(ns) : "-";
  table($("sequences-table"), [at("sequence", (s) => s.id), text("from", (s) => s.first), at("ops", (s) => s.ops, count), at("turns", (s) => s.turns, count), at("iterations", (s) => s.iterations, count),
    at("by plan", (s) => s.planned_iterations, count), at("each", (s) => s.planned_ns, some), at("promised", (s) => s.promised_ns, some), at("on demand", (s) => s.demand_ns, some),
    at("all resident", (s) => s.ideal_ns, some), at("given up", (s) => s.given_up, count)], sequences, -1);
  $("plan-notes").replaceChildren(
    ...r.adaptations.map((a) => element("p", `Another plan for sequence ${a.sequence}: ${a.change}; ${time(a.before_ns)} before, ` + (a.measured_ns ? `${time(a.measured_ns)} by it, ${a.kept ? "kept" : "given up"}.` : "not measured yet."))),
    ...r.mispredicted.slice(0, 20).map((m) => element("p", `Stepped out ${count(m.times)} times at ${m.seen}, where ${m.expected} was expected.`)));
  table($("steps-table"), [at("sequence", (s) => s.sequence), at("op", (s) => s.index), text("name", (s) => s.name), at("later by", (s) => s.delay_ns, time), at("began", (s) => s.start_ns, time),
    at("was to begin", (s) => s.planned_start_ns, time), at("took", (s) => s.took_ns, time), at("was to take", (s) => s.planned_ns, time), at("launch held back", (s) => s.held_times, count), at("in all", (s) => s.held_ns, time),
    text("for", (s) => s.cause ? `${s.cause} (${s.buffer})` : "")], r.steps.filter((s) => s.delay_ns), 3);
}
function show_models() {
  const m = run.report.models, body = $("models-body");
  $("models").hidden = !m;
  if (!m) return;
  body.replaceChildren();
  const line = (text) => body.append(element("p", text));
  for (const text of m.summary || []) line(text);
  if (m.kinds) {
    const t = element("table"), box = element("div", undefined, "scroll");
    table(t, [{title: "kind of op", value: (k) => k.kind, text: true}, {title: "ops", value: (k) => k.ops, show: count}, {title: "time", value: (k) => k.time_ns, show: time}, {title: "share", value: (k) => k.time_ns / Math.max(1, m.compute.ideal_ns), show: percent},
      {title: "GFLOP", value: (k) => k.flops / 1e9, show: (x) => x ? x.toPrecision(4) : "-"}, {title: "TFLOP/s", value: (k) => k.time_ns ? k.flops / k.time_ns / 1e3 : 0, show: (x) => x ? x.toPrecision(3) : "-"}, {title: "bytes named", value: (k) => k.bytes, show: bytes}], m.kinds, 2);
    box.append(t); body.append(box);
  }
}

const times = (n) => `${count(n)} time${n === 1 ? "" : "s"}`;

// How the program orders its ops, and what timed them.
function order_text(i) {
  return (i.streams > 1 || i.host_waits ? ` ${count(i.streams)} stream${i.streams === 1 ? "" : `s, of which one waits for another ${times(i.stream_waits)}`}; the host waits for the device ${times(i.host_waits)}.` : "") +
    (i.timed_by ? ` Times by ${i.timed_by}.` : "");
}

function show_run(index) {
  run = DATA.runs[index]; view = run.view || null; chosen = -1; wanted = ""; $("search").value = ""; $("found").textContent = ""; $("chosen").hidden = true;
  const r = run.report;
  $("title").textContent = r.program || r.trace;
  $("subtitle").textContent = [r.rank >= 0 ? `rank ${r.rank}${r.world_size > 0 ? " of " + r.world_size : ""}` : "", r.pid ? `pid ${r.pid} on ${r.host}` : "", r.device, r.policy ? "policy " + r.policy : "", r.version ? "udnnmem " + r.version : "", r.started_unix_ns ? new Date(r.started_unix_ns / 1e6).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "", r.trace].filter(Boolean).join(" · ");
  document.title = `${r.program || r.trace} · udnnmem`;
  figures(); show_models(); show_plan();
  for (const id of ["iteration", "buffers", "evicted", "ops"]) $(id).hidden = !view;
  if (view) {
    if (!view.start) unpack(view);
    const modes = [["", view.observed ? "where it is" : "buffer"], ["idle", "idle share"]];
    if (view.ops.phase.some((p) => p)) modes.splice(1, 0, ["phase", "phase"]);
    if (view.ranges.length > 1) modes.push(["range", "program's ranges"]);
    $("colour").replaceChildren(...modes.map(([v, t]) => { const o = element("option", t); o.value = v; return o; }));
    colouring = ""; from = 0; to = view.length || 1;
    const drawn = element("span", `${count(view.n)} ops, ${count(view.m)} buffers, ${time(view.ideal)} with everything resident, peak live ${bytes(view.peak)} at ${op_text(view.peak_op)}. `);
    drawn.dataset.figure = "drawn"; drawn.dataset.value = JSON.stringify({ops: view.n, buffers: view.m, ideal_ns: view.ops.duration.reduce((s, d) => s + d, 0), peak_live_bytes: view.peak, peak_op: view.peak_op, idle_byte_ns: view.buffers.idle.reduce((s, d, i) => s + d * view.buffers.bytes[i], 0), copied_in: view.link.in.length, copied_out: view.link.out.length});
    $("caption").replaceChildren(drawn, view.observed ? `As it ran while it was learned: ${time(view.length)} on the device.` : "Ops follow each other without a pause: the trace does not say when they ran.", order_text(r.iteration));
    legend(); tables(); evictions(); draw();
  }
  draw_run();
}
function ranks() {
  if (DATA.runs.length < 2) return;
  $("ranks").hidden = $("choose").hidden = false;
  const name = (r) => r.rank >= 0 ? `rank ${r.rank}` : r.pid ? `pid ${r.pid}` : r.program;
  DATA.runs.forEach(({report}, i) => { const o = element("option", `${name(report)} ${report.program}`); o.value = i; $("run").append(o); });
  $("run").onchange = (e) => show_run(+e.target.value);
  const rows = FIGURES.filter(([f]) => DATA.runs.some(({report}) => report[f])).map(([f, title, show]) => ({f, title, show}));
  table($("ranks-table"), [{title: "", value: (r) => r.title, text: true}, ...DATA.runs.map(({report}) => ({title: name(report), value: (r) => report[r.f], show: (x, r) => r.show(x)}))], rows, -1);
}
ranks();
watch();
show_run(0);
document.documentElement.dataset.ready = Math.round(performance.now());
