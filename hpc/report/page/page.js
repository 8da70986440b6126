"use strict";
// Shows the parts that are in #data: tables to sort and search, columns of a row against the whole, matrices, traces.
// Texts are set as text, never as markup. What is long is made as it is looked at.
(() => {
const CHUNK = 50, SVG = "http://www.w3.org/2000/svg", LEVELS_FIRST = 3;
const DASHES = ["", "7 3", "2 2", "9 3 2 3", "4 4", "1 3", "12 4", "6 2 1 2"];
const parts = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("details");

function make(tag, attributes = {}, ...children) {
  const of = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) of.addEventListener(name.slice(2), value);
    else if (name === "text") of.textContent = value;
    else if (value !== null && value !== false) of.setAttribute(name, value);
  }
  of.append(...children.filter((c) => c !== null && c !== undefined));
  return of;
}

// --- numbers as people write them -----------------------------------------------------------------------------------
const grouped = (x, digits = 0) => x.toLocaleString("en-US", { minimumFractionDigits: 0, maximumFractionDigits: digits });
function number(x) {
  if (x === null || x === undefined) return "-";
  const size = Math.abs(x);
  if (x === 0) return "0";
  if (size >= 1e7 && size < 9.995e8) return `${Number((x / 1e6).toPrecision(3))} million`;
  if (size < 5e-4 || size >= 1e7) return x.toPrecision(3).replace("e+", "e");
  return grouped(x, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 1 - Math.floor(Math.log10(size)));
}
function percent(p) {
  if (p === null || p === undefined) return "-";
  const x = 100 * p;
  if (x > 0 && x < 0.01) return "<0.01 %";
  if (x >= 99.95 || x === 0 || (x >= 9.95 && x < 99)) return `${x.toFixed(0)} %`;
  return x < 9.95 ? `${Number(x.toPrecision(2))} %` : `${x.toFixed(1)} %`;
}
const counted = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;
const FORMS = { whole: (x) => (x === null ? "-" : grouped(x)), share: percent, number, text: (x) => x ?? "" };

// --- bytes ----------------------------------------------------------------------------------------------------------
function bytes(text) { return Uint8Array.from(atob(text), (c) => c.charCodeAt(0)); }
function sixteen(text) {
  const view = new DataView(bytes(text).buffer), out = new Uint16Array(view.byteLength / 2);
  for (let i = 0; i < out.length; i++) out[i] = view.getUint16(2 * i, true);
  return out;
}

// Rows that are made as they come into sight: `one(i)` makes the i-th of n below `into`; its `foot` says what is left.
function lazily(into, n, one, root) {
  let made = 0;
  const foot = make("button", { class: "more", type: "button", onclick: () => more() });
  function more() {
    const some = document.createDocumentFragment(), end = Math.min(n, made + CHUNK);
    for (; made < end; made++) some.append(one(made));
    into.append(some);
    foot.hidden = made >= n;
    foot.textContent = `${grouped(n - made)} more`;
  }
  more();
  const seen = new IntersectionObserver((entries) => {
    if (entries.some((e) => e.isIntersecting) && made < n) { more(); seen.unobserve(foot); seen.observe(foot); }
  }, { root, rootMargin: "300px" });
  seen.observe(foot);
  return { foot, stop: () => seen.disconnect() };
}

// --- tables ---------------------------------------------------------------------------------------------------------
function browse(place, b) {
  const order = b.rows.map((_, i) => i), found = b.rows.map((row) => row.filter((x) => typeof x === "string").join(" \u0001").toLowerCase());
  const firstText = Math.max(0, b.fields.findIndex((f) => f[1] === "text"));
  let sorted = [null, 1], wanted = "", lazy = null;
  const body = make("tbody"), said = make("output", { "aria-live": "polite", class: "dim" });
  const range = b.fields.map((f, j) => (f[1] === "interval" ? span(b.rows.map((row) => row[j])) : null));
  const heads = b.fields.map(([heading, kind, about], j) =>
    make("th", { scope: "col", class: ["text", "interval"].includes(kind) ? null : "num", title: about || null },
      heading ? make("button", { type: "button", text: heading, onclick: () => sort(j) }) : null));
  const table = make("table", { class: "cards" }, make("thead", {}, make("tr", {}, ...heads)), body);
  const box = make("div", { class: b.rows.length > CHUNK ? "wide scroll" : "wide", tabindex: "0", role: "region", "aria-label": `${b.noun}s` }, table);
  const input = make("input", { type: "search", autocomplete: "off", oninput: () => { wanted = input.value.toLowerCase(); show(); } });
  if (b.rows.length > 8) place.append(make("div", { class: "tools" }, make("label", {}, `Search ${b.noun}s `, input), said));
  place.append(box);
  if (b.caption) place.append(make("p", { class: "dim", text: b.caption }));

  function value(row, j) { const x = b.rows[row][j]; return Array.isArray(x) ? x[1] : x; }
  function sort(j) {
    const down = b.fields[j][1] !== "text";
    sorted = sorted[0] === j ? [j, -sorted[1]] : [j, down ? -1 : 1];
    order.sort((p, q) => {
      const x = value(p, j), y = value(q, j);
      if (x === null || y === null) return (x === null) - (y === null) || p - q;
      return sorted[1] * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y) || p - q;
    });
    heads.forEach((h, i) => (i === j ? h.setAttribute("aria-sort", sorted[1] > 0 ? "ascending" : "descending") : h.removeAttribute("aria-sort")));
    show();
  }
  function show() {
    lazy?.stop(); lazy?.foot.remove();
    body.replaceChildren();
    const words = wanted.split(/\s+/).filter(Boolean);
    const rows = order.filter((i) => words.every((w) => found[i].includes(w)));
    said.textContent = rows.length === b.rows.length ? counted(rows.length, b.noun) : `${grouped(rows.length)} of ${grouped(b.rows.length)}`;
    lazy = lazily(body, rows.length, (i) => line(rows[i]), getComputedStyle(box).maxHeight === "none" ? null : box);
    box.append(lazy.foot);
  }
  function line(i) {
    const open = b.details && i < b.details.n;
    return make("tr", {}, ...b.fields.map(([heading, kind], j) => {
      const x = b.rows[i][j], cell = (look, ...more) => make("td", { class: look, "data-label": j === firstText ? null : heading }, ...more);
      if (kind === "interval") return cell(null, x ? interval(x, range[j]) : "-");
      const text = FORMS[kind](x), look = kind === "text" ? (text.length > 28 ? "words" : null) : "num";
      if (j === firstText && open) return cell(`${look ?? ""} main`, make("button", { type: "button", text: text || "(no name)", onclick: () => details(place.id, b, i) }));
      if (kind !== "share" || x === null) return cell(j === firstText ? `${look ?? ""} main` : look, text);
      const bar = make("span", { class: "share", text });
      bar.style.setProperty("--w", `${100 * x}%`);
      return cell(look, bar);
    }));
  }
  show();
}
function span(intervals) {
  const all = intervals.filter(Boolean).flat().filter((x) => x !== null);
  return all.length ? [Math.min(0, ...all), Math.max(0, ...all)] : [0, 1];
}
function interval([low, middle, high], [least, most]) {
  const width = 150, x = (v) => 4 + ((v - least) / (most - least || 1)) * (width - 8);
  if ([low, middle, high].includes(null)) return "-";
  const line = (a, b, y, w, stroke) => make("svg:line", { x1: a, x2: b, y1: y[0], y2: y[1], "stroke-width": w, stroke });
  return make("svg:svg", { width, height: 16, role: "img", "aria-label": `${number(low)} to ${number(high)}` },
    line(x(0), x(0), [0, 16], 1, "var(--whole)"), line(x(low), x(high), [8, 8], 3, "var(--here)"),
    make("svg:circle", { cx: x(middle), cy: 8, r: 3.5, fill: "var(--here)" }));
}

// --- all columns of a row against the whole --------------------------------------------------------------------------
const unpacked = new WeakMap();
function column(c) {
  if (!unpacked.has(c)) {
    unpacked.set(c, { apart: sixteen(c.apart), p: c.p === undefined ? null : sixteen(c.p), missing: c.missing ? sixteen(c.missing) : null });
  }
  return unpacked.get(c);
}
function details(id, b, i, from = null) {
  const d = b.details, list = make("div"), input = make("input", { type: "search", autocomplete: "off", oninput: () => show() });
  const title = make("h2", { id: "details-title", tabindex: "-1", text: b.titles[i] || `${b.noun} ${i + 1}` });
  const go = (step, label) => details(id, b, (i + step + d.n) % d.n, label);
  const push = (text, label, onclick) => make("button", { type: "button", class: "push", text, "aria-label": label, onclick });
  const order = d.columns.map((_, j) => j).sort((p, q) => column(d.columns[q]).apart[i] - column(d.columns[p]).apart[i] || p - q);
  let lazy = null;
  function show() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = order.filter((j) => words.every((w) => d.columns[j].name.toLowerCase().includes(w)));
    lazy?.stop(); lazy?.foot.remove();
    list.replaceChildren();
    lazy = lazily(list, found.length, (k) => against(d, d.columns[found[k]], i), dialog);
    list.after(lazy.foot);
  }
  dialog.replaceChildren(
    make("div", { class: "bar" }, title, make("div", { class: "tools" },
      push("\u2190", `Previous ${b.noun}`, () => go(-1, 0)), push("\u2192", `Next ${b.noun}`, () => go(1, 1)),
      make("label", {}, "Search columns ", input), push("Close", "Close", () => dialog.close()))),
    make("p", { class: "dim", text: `The columns in the order of ${d.apart}. Blue: ${d.here}; black mark or grey bar: ${d.whole}.` }), list);
  dialog.onkeydown = (e) => {
    if (e.target === input || !["ArrowLeft", "ArrowRight"].includes(e.key)) return;
    e.preventDefault();
    go(e.key === "ArrowLeft" ? -1 : 1);
  };
  show();
  history.replaceState(null, "", `#${id}/${i + 1}`);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  (from === null ? title : dialog.querySelectorAll(".push")[from]).focus();  // what had it is gone
}
dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
function against(d, c, i) {
  const u = column(c), head = make("div", {}, make("b", { text: c.name }), make("span", { class: "dim", text: `${(u.apart[i] / 1000).toFixed(2)}` }));
  const box = make("div", { class: "column" }, head), missing = u.missing ? u.missing[i] / 65535 : 0;
  if (u.p) {
    const n = c.levels.length, p = c.levels.map((_, v) => u.p[i * n + v] / 65535);
    const weight = (v) => Math.abs(p[v] - c.overall[v]) + 0.3 * p[v];
    const order = p.map((_, v) => v), first = c.ordered ? n : LEVELS_FIRST;
    if (!c.ordered) order.sort((v, w) => weight(w) - weight(v) || v - w);
    const level = (v) => meter(c.levels[v] === "" ? "(empty)" : c.levels[v], p[v], c.overall[v]);
    box.append(...order.slice(0, first).map(level));
    if (n > first) {
      const rest = make("details", {}, make("summary", { class: "dim", text: counted(n - LEVELS_FIRST, "more level") + (c.more ? ` (and ${grouped(c.more)} that differ less)` : "") }));
      rest.addEventListener("toggle", () => rest.children.length === 1 && rest.append(...order.slice(LEVELS_FIRST).map(level)), { once: true });
      box.append(rest);
    }
  } else box.append(numbers(d, c, i));
  if (u.missing) box.append(meter("missing", missing, c.missing_overall));
  return box;
}
function meter(label, here, overall) {
  const bar = make("div", { class: "meter" }, make("i"), make("u"));
  bar.children[0].style.width = `${100 * here}%`;
  bar.children[1].style.left = `${100 * overall}%`;
  return make("div", { class: "level" }, make("span", { text: label }), bar, make("span", { text: `${percent(here)} (${percent(overall)})` }));
}
function numbers(d, c, i) {
  const mean = c.mean[i], sd = c.sd[i], [m, s] = c.overall;
  const words = (x, y) => (x === null ? "-" : c.log ? `${number(Math.exp(x))} \u00d7/\u00f7 ${number(Math.exp(y))}` : y === null ? number(x) : `${number(x)} \u00b1 ${number(y)}`);
  const text = c.words ? [c.words[i + 1], c.words[0]] : [words(mean, sd), words(m, s)];
  const bar = make("div", { class: "meter" });
  if (mean !== null && m !== null) {
    const reach = Math.max(3 * (s || 0), Math.abs(mean - m) + (sd || 0), 1e-300), at = (x) => 50 + (50 * (x - m)) / reach;
    const piece = (name, low, high) => { const p = make("i", { class: name }); p.style.left = `${Math.max(0, at(low))}%`; p.style.width = `${Math.min(100, at(high)) - Math.max(0, at(low))}%`; return p; };
    const middle = make("i", { class: "middle" });
    middle.style.left = `${at(mean)}%`;
    bar.append(piece("all", m - (s || 0), m + (s || 0)), piece("range", mean - (sd || 0), mean + (sd || 0)), middle);
  }
  return make("div", { class: "level" }, make("span", { text: text[0] }), bar, make("span", { text: `(${text[1]})` }));
}

// --- tables behind a slider ------------------------------------------------------------------------------------------
function stops(place, s) {
  const input = make("input", { type: "range", min: 0, max: s.stops.length - 1, step: 1, id: `${place.id}-at`, oninput: () => show() });
  const name = make("output", { for: input.id, class: "at" }), words = make("p", { "aria-live": "polite" }), table = make("div", { id: `${place.id}-table` });
  const step = (text, label, by) => make("button", { type: "button", class: "push", text, "aria-label": label, onclick: () => { input.value = +input.value + by; show(); } });
  const marks = make("div", { class: "marks", "aria-hidden": "true" }, ...s.stops.map((stop, i) => make("i", { class: stop.mark, title: stop.name, onclick: () => { input.value = i; show(); } })));
  input.value = s.first;
  place.append(make("div", { class: "stops" }, make("label", { for: input.id, text: s.label }), step("\u2190", "Fewer", -1),
    make("div", { class: "track" }, input, marks), step("\u2192", "More", 1), name), words, table);
  function show() {
    const stop = s.stops[+input.value];
    name.textContent = stop.name;
    input.setAttribute("aria-valuetext", stop.name);
    words.textContent = stop.words;
    words.className = `level-${stop.mark}`;
    table.replaceChildren();
    browse(table, stop.table);
  }
  show();
}

// --- matrices ---------------------------------------------------------------------------------------------------------
const colour = (name) => { const v = getComputedStyle(document.documentElement).getPropertyValue(name).trim(); return [1, 3, 5].map((k) => parseInt(v.slice(k, k + 2), 16)); };
function matrix(place, m) {
  const n = m.names.length, share = bytes(m.share), canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": m.words });
  const readout = make("output", { class: "readout", "aria-live": "polite" }), start = [0, ...m.ends];
  const of = (i, j) => (i === j ? 255 : share[i > j ? (i * (i - 1)) / 2 + j : (j * (j - 1)) / 2 + i]);
  const group = (i) => m.ends.findIndex((e) => i < e) + 1;
  let cell = 1, left = 0, top = 18, at = null;
  place.append(make("p", { class: "dim", text: `${m.words}. Point at a cell, or move with the arrow keys.` + (m.left_out ? ` ${counted(m.left_out, "more column")} not shown.` : "") }),
    make("div", { class: "dim scale" }, "0 %", make("span"), "100 %"), canvas, readout);
  function draw() {
    const room = Math.min(place.clientWidth, 900), dark = colour("--low"), light = colour("--high"), pixels = window.devicePixelRatio || 1;
    const pen = canvas.getContext("2d");
    pen.font = "11px sans-serif";
    const names = Math.min(220, Math.max(...m.names.map((w) => pen.measureText(w).width)) + 8), named = (room - names - 30) / n >= 11;
    left = 26 + (named ? names : 0);
    cell = Math.min(26, (room - left - 2) / n);
    const size = cell * n;
    canvas.width = (left + size + 2) * pixels; canvas.height = (top + size + 2) * pixels;
    canvas.style.width = `${left + size + 2}px`; canvas.style.height = "auto";
    const picture = new ImageData(n, n);
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      const p = of(i, j) / 255, k = 4 * (i * n + j);
      for (let c = 0; c < 3; c++) picture.data[k + c] = dark[c] + p * (light[c] - dark[c]);
      picture.data[k + 3] = 255;
    }
    const small = make("canvas", { width: n, height: n });
    small.getContext("2d").putImageData(picture, 0, 0);
    pen.scale(pixels, pixels);
    pen.imageSmoothingEnabled = cell < 1;
    pen.drawImage(small, left, top, size, size);
    const ink = getComputedStyle(document.documentElement);
    pen.strokeStyle = pen.fillStyle = ink.getPropertyValue("--ink");
    pen.lineWidth = 0.8;
    pen.font = "11px sans-serif";
    pen.textBaseline = "middle";
    pen.strokeRect(left, top, size, size);
    for (const e of m.ends) { pen.beginPath(); pen.moveTo(left + e * cell, top); pen.lineTo(left + e * cell, top + size); pen.moveTo(left, top + e * cell); pen.lineTo(left + size, top + e * cell); pen.stroke(); }
    if (named) { pen.textAlign = "right"; m.names.forEach((w, i) => pen.fillText(short(pen, w, names), left - 4, top + (i + 0.5) * cell)); }
    pen.font = "bold 11px sans-serif";
    pen.textAlign = "center";
    start.slice(0, -1).forEach((s, g) => { const wide = (start[g + 1] - s) * cell, mid = (s + start[g + 1]) / 2; if (wide > 9) { pen.fillText(`${g + 1}`, left + mid * cell, top / 2); pen.fillText(`${g + 1}`, 10, top + mid * cell); } });
    if (at) { pen.strokeStyle = ink.getPropertyValue("--c1"); pen.lineWidth = 2; pen.strokeRect(left + at[1] * cell, top + at[0] * cell, Math.max(cell, 3), Math.max(cell, 3)); }
  }
  function say(i, j) {
    if (!(i >= 0 && j >= 0 && i < n && j < n)) return;
    at = [i, j];
    readout.textContent = i === j ? `${m.names[i]} (${m.group} ${group(i)})` : `${m.names[i]} (${m.group} ${group(i)}) with ${m.names[j]} (${m.group} ${group(j)}): ${percent(of(i, j) / 255)}`;
    draw();
  }
  const point = (e) => { const r = canvas.getBoundingClientRect(); say(Math.floor((e.clientY - r.top - top) / cell), Math.floor((e.clientX - r.left - left) / cell)); };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("keydown", (e) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (!step) return;
    e.preventDefault();
    const [i, j] = at ?? [0, 0];
    say(Math.max(0, Math.min(n - 1, i + step[0])), Math.max(0, Math.min(n - 1, j + step[1])));
  });
  whenever(place, draw);
}
function short(pen, text, width) {
  while (text.length > 2 && pen.measureText(text).width > width - 6) text = `${text.slice(0, -2)}\u2026`;
  return text;
}

// --- traces -----------------------------------------------------------------------------------------------------------
function traces(place, t) {
  if (t.chains.length > 1) {
    place.append(make("div", { class: "key" }, ...t.chains.map((c, i) => make("span", {},
      make("svg:svg", {}, make("svg:line", { x1: 0, x2: 35, y1: 6, y2: 6, stroke: `var(--c${i % 8})`, "stroke-width": 2, "stroke-dasharray": DASHES[i % 8] })), c.name))));
  }
  for (const p of t.panels) {
    const svg = make("svg:svg", { class: "trace", role: "img", "aria-label": p.title });
    place.append(svg);
    whenever(svg, () => panel(svg, t, p));
  }
  if (t.chains.some((c) => c.burn_in)) place.append(make("p", { class: "dim", text: "Grey: burn-in, which is left out." }));
}
function ticks(low, high, most) {
  const raw = (high - low) / most, unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((k) => k * unit).find((s) => s >= raw) || unit;
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + 1e-9 * step; x += step) found.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return [found, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))];
}
function panel(svg, t, p) {
  const width = Math.max(280, svg.getBoundingClientRect().width), height = 190, left = 78, right = 8, top = 24, bottom = 22;
  const last = Math.max(1, ...p.lines.map((l) => l.x.at(-1) ?? 0)), every = p.lines.flatMap((l) => l.y);
  let later = p.lines.flatMap((l, i) => l.y.filter((_, k) => l.x[k] > t.chains[i].burn_in));
  if (!later.length) later = every;
  const extent = (v) => v.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);
  let [low, high] = extent(later);
  const [least, most] = extent(every), pad = Math.max(high - low, p.whole ? 1 : 1e-9 * Math.abs(high) + 1e-9);
  low = least >= low - 1.5 * pad ? least : low - 0.4 * pad;
  high = most <= high + 1.5 * pad || !p.whole ? most : high + 0.4 * pad;
  const margin = 0.04 * (high - low) || 0.5;
  low -= margin; high += margin;
  const x = (v) => left + (v / last) * (width - left - right), y = (v) => top + (1 - (v - low) / (high - low)) * (height - top - bottom);
  const clip = `clip-${svg.dataset.id ??= Math.random().toString(36).slice(2)}`;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const out = [make("svg:clipPath", { id: clip }, make("svg:rect", { x: left, y: top, width: width - left - right, height: height - top - bottom }))];
  const burn = Math.min(last, ...t.chains.map((c) => c.burn_in));
  if (burn > 0) out.push(make("svg:rect", { class: "out", x: left, y: top, width: x(burn) - left, height: height - top - bottom }));
  const [across, dx] = ticks(0, last, width < 500 ? 4 : 8), [up, dy] = ticks(low, high, 4);
  for (const v of up.filter((v) => !p.whole || Number.isInteger(v))) out.push(make("svg:line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }), make("svg:text", { x: left - 6, y: y(v) + 4, "text-anchor": "end", text: grouped(v, dy) }));
  for (const v of across) out.push(make("svg:text", { x: x(v), y: height - 6, "text-anchor": "middle", text: grouped(v, dx) }));
  out.push(make("svg:text", { class: "title", x: left, y: 15, text: p.title + (least < low ? ` (cut off: down to ${number(least)})` : "") }));
  p.lines.forEach((l, i) => {
    const d = l.x.map((v, k) => (k === 0 ? `M${x(v).toFixed(1)} ${y(l.y[k]).toFixed(1)}` : p.whole ? `H${x(v).toFixed(1)}V${y(l.y[k]).toFixed(1)}` : `L${x(v).toFixed(1)} ${y(l.y[k]).toFixed(1)}`)).join("");
    if (l.x.length === 1) out.push(make("svg:circle", { cx: x(l.x[0]), cy: y(l.y[0]), r: 3, fill: `var(--c${i % 8})` }));
    out.push(make("svg:path", { d, stroke: `var(--c${i % 8})`, "stroke-dasharray": l.x.length < 400 ? DASHES[i % 8] : "", "clip-path": `url(#${clip})` }));
  });
  svg.replaceChildren(...out);
}

// Draws now and whenever the width or the colours change.
function whenever(element, draw) {
  let width = -1;
  new ResizeObserver(() => { const w = Math.round(element.getBoundingClientRect().width); if (w > 0 && w !== width) { width = w; draw(); } }).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", draw);
}

const SHOW = { browse, matrix, stops, traces };
// The first parts at once, the others when they come near.
const near = new IntersectionObserver((entries) => entries.filter((e) => e.isIntersecting).forEach((e) => reveal(e.target)), { rootMargin: "1200px" });
const waiting = new Map(parts.map((p) => [document.getElementById(p.id), p]));
function reveal(place) {
  const part = waiting.get(place);
  if (!part) return;
  waiting.delete(place);
  near.unobserve(place);
  SHOW[part.part](place, part);
}
[...waiting.keys()].forEach((place) => near.observe(place));
addEventListener("beforeprint", () => [...waiting.keys()].forEach(reveal));
function follow() {
  const [, id, row] = /^#([\w-]+)\/(\d+)$/.exec(location.hash) ?? [];
  const part = parts.find((p) => p.id === id);
  if (part?.details && row >= 1 && row <= part.details.n) { const place = document.getElementById(id); reveal(place); place.scrollIntoView(); details(id, part, row - 1); }
}
addEventListener("hashchange", follow);
follow();
})();
