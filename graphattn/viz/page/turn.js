// A graph in space: turn it, choose a target, see its sources. The page holds the data; nothing is loaded.
"use strict";

const RAMP = [[211, 223, 240], [122, 165, 216], [43, 98, 168], [11, 28, 51]]; // weak to strong, by lightness
const HEAT = [[240, 231, 214], [249, 200, 120], [234, 122, 53], [156, 29, 32]], GREY = [195, 202, 211]; // of surfaces
const INK = "#1f2933", CHOSEN = "#D55E00";
const MOST_SQUARES = 20000;

// --- data

/** Numbers as they were: base64 of deflated bytes, the first byte of every number first. */
async function decode(text, Kind) {
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const whole = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const parts = new Uint8Array(await new Response(whole).arrayBuffer());
  const size = Kind.BYTES_PER_ELEMENT, count = parts.length / size, mixed = new Uint8Array(parts.length);
  if (size === 1) return new Kind(parts.buffer);
  for (let b = 0; b < size; b++) {
    for (let i = 0; i < count; i++) mixed[i * size + b] = parts[b * count + i];
  }
  return new Kind(mixed.buffer);
}

/** Rows of three, `of` each number, from the first of all, the second of all and the third. */
function rowsOf(parts, Kind, of) {
  const count = parts.length / 3, rows = new Kind(parts.length);
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < 3; k++) rows[3 * i + k] = of(parts[k * count + i]);
  }
  return rows;
}

/** Bytes (N, 3) of colours: of the parts of each, or of a palette. */
async function colorsOf(each) {
  const parts = await decode(each.rgb, Uint8Array);
  if (each.palette === null) return rowsOf(parts, Uint8Array, (x) => x);
  return gathered(Uint8Array.from(each.palette.flat()), parts);
}

/** Each set of nodes as typed arrays, with the colours that it may have. */
async function setsOf(data) {
  return Promise.all(data.sets.map(async (set) => ({
    room: set.room,
    at: rowsOf(await decode(set.at, Uint16Array), Float32Array, (x) => x / 32767.5 - 1),
    faces: await decode(set.faces, Uint32Array),
    node: await decode(set.node, Uint32Array),
    normal: rowsOf(await decode(set.normal, Int8Array), Int8Array, (x) => x),
    colors: await Promise.all(set.colors.map(async (each) => ({ ...each, rgb: await colorsOf(each) }))),
  })));
}

/** One of the graphs, with the places of its sources and targets: the same array where they are the same nodes. */
async function sceneOf(data, sets, which) {
  const graph = data.graphs[which], from = sets[graph.from], to = sets[graph.to];
  return {
    ...graph,
    flat: data.flat,
    box: Float32Array.from(data.box),
    camera: data.camera,
    sources: from.at.length / 3,
    targets: to.at.length / 3,
    sourceAt: from.at,
    targetAt: to.at,
    ptr: await decode(graph.ptr, Uint32Array),
    source: await decode(graph.source, Uint32Array),
    weight: graph.weight === null ? null : await decode(graph.weight, Uint16Array),
  };
}

/** What a target reads: sources and weights, lightest first; `head` -1 is the mean. Copies of an edge stay apart. */
function readBy(scene, target, head) {
  const found = [];
  for (let edge = scene.ptr[target]; edge < scene.ptr[target + 1]; edge++) {
    let weight = 1;
    if (scene.weight !== null) {
      const own = scene.weight.subarray(edge * scene.heads, (edge + 1) * scene.heads);
      weight = (head >= 0 ? own[head] : own.reduce((sum, each) => sum + each, 0) / scene.heads) * (scene.top / 65535);
    }
    found.push({ source: scene.source[edge], weight });
  }
  return found.sort((a, b) => a.weight - b.weight);
}

// --- geometry: nodes lie in the unit ball; a view turns it, and looks along -z

/** Rows right, up, towards the eye; degrees as in matplotlib. */
function lookingFrom(elevation, azimuth) {
  const e = (elevation * Math.PI) / 180, a = (azimuth * Math.PI) / 180;
  return [
    -Math.sin(a), Math.cos(a), 0,
    -Math.sin(e) * Math.cos(a), -Math.sin(e) * Math.sin(a), Math.cos(e),
    Math.cos(e) * Math.cos(a), Math.cos(e) * Math.sin(a), Math.sin(e),
  ];
}

function startOf(scene) {
  const turn = scene.flat ? [1, 0, 0, 0, 1, 0, 0, 0, 1] : lookingFrom(...scene.camera);
  return { turn, zoom: 1, shift: [0, 0], width: 800, height: 600 };
}

/** The view nearer or farther, so that the nodes fill the picture; but for a few strays in a hundred. */
function fitted(scene, view) {
  const inside = scene.box.length ? scene.box : scene.sourceAt;
  const step = 3 * Math.max(1, Math.floor(inside.length / 15000)), seen = project(inside, { ...view, zoom: 1, shift: [0, 0] });
  const [across, down] = [0, 1].map((axis) => {
    const places = [];
    for (let i = axis; i < seen.length; i += step) places.push(seen[i]);
    places.sort((a, b) => a - b);
    const last = places.length - 1, stray = Math.floor(0.002 * last);
    const near = places[last - stray] - places[stray], whole = places[last] - places[0];
    return whole > 1.6 * near && last > 1000 ? [places[stray], places[last - stray]] : [places[0], places[last]];
  });
  if (!seen.length) return view;
  const room = [view.width / (across[1] - across[0] || 1), view.height / (down[1] - down[0] || 1)];
  const zoom = Math.min(50, 0.94 * Math.min(...room));
  const middle = [view.width / 2 - (across[0] + across[1]) / 2, view.height / 2 - (down[0] + down[1]) / 2];
  return { ...view, zoom, shift: middle.map((away) => away * zoom) };
}

/** The front follows a pointer that moves right by `right` and down by `down` radians. */
function turned(turn, right, down) {
  const [cr, sr, cd, sd] = [Math.cos(right), Math.sin(right), Math.cos(down), Math.sin(down)];
  const after = new Array(9);
  for (let i = 0; i < 3; i++) {
    const x = cr * turn[i] + sr * turn[6 + i], z = cr * turn[6 + i] - sr * turn[i];
    after[i] = x;
    after[3 + i] = cd * turn[3 + i] - sd * z;
    after[6 + i] = sd * turn[3 + i] + cd * z;
  }
  return after;
}

/** Pixels of a unit: the ball fills the shorter side. */
function pixels(view) {
  return 0.46 * view.zoom * Math.min(view.width, view.height);
}

/** x, y in pixels and depth (1 nearest the eye, -1 farthest) of every point. */
function project(at, view) {
  const r = view.turn, scale = pixels(view);
  const left = view.width / 2 + view.shift[0], top = view.height / 2 + view.shift[1];
  const seen = new Float32Array(at.length);
  for (let i = 0; i < at.length; i += 3) {
    const x = at[i], y = at[i + 1], z = at[i + 2];
    seen[i] = left + scale * (r[0] * x + r[1] * y + r[2] * z);
    seen[i + 1] = top - scale * (r[3] * x + r[4] * y + r[5] * z);
    seen[i + 2] = r[6] * x + r[7] * y + r[8] * z;
  }
  return seen;
}

/** The view with a target in the middle, seen from outside, its sources filling a third of the picture. */
function lookingAt(scene, view, target) {
  const at = scene.targetAt.slice(3 * target, 3 * target + 3), out = Math.hypot(...at);
  let turn = view.turn;
  if (!scene.flat && out > 1e-6) {
    turn = lookingFrom((Math.asin(at[2] / out) * 180) / Math.PI, (Math.atan2(at[1], at[0]) * 180) / Math.PI);
  }
  const far = readBy(scene, target, -1).reduce((most, { source }) =>
    Math.max(most, Math.hypot(...at.map((x, i) => x - scene.sourceAt[3 * source + i]))), 0.02);
  const closer = { ...view, turn, zoom: Math.max(1, 0.7 / far), shift: [0, 0] };
  const [x, y] = project(at, closer);
  return { ...closer, shift: [view.width / 2 - x, view.height / 2 - y] };
}

/** The point under the pointer, the nearer to the eye of two; -1 if none is within `reach` pixels. */
function pick(seen, x, y, reach) {
  let best = -1, least = Infinity;
  for (let i = 0; i < seen.length; i += 3) {
    const away = Math.hypot(seen[i] - x, seen[i + 1] - y) / reach;
    const cost = away - seen[i + 2];
    if (away <= 1 && cost < least) [best, least] = [i / 3, cost];
  }
  return best;
}

// --- drawing

/** Red, green and blue of a ramp; `share` 0 is weak and 1 strong. */
function mixed(share, ramp) {
  const place = Math.min(1, Math.max(0, share)) * (ramp.length - 1);
  const low = Math.min(ramp.length - 2, Math.floor(place));
  return ramp[low].map((part, i) => Math.round(part + (place - low) * (ramp[low + 1][i] - part)));
}

function colourOf(share) {
  return `rgb(${mixed(share, RAMP).join(",")})`;
}

/** Colours of the sources by the weights of the target; grey is not read. */
function heatOf(scene, chosen) {
  const rgb = new Uint8Array(3 * scene.sources).map((_, i) => GREY[i % 3]);
  if (chosen.target < 0) return rgb;
  const read = readBy(scene, chosen.target, chosen.head), most = darkest(scene, read, chosen.relative);
  for (const { source, weight } of read) rgb.set(mixed(weight / most, HEAT), 3 * source);
  return rgb;
}

/** Targets of their own as open squares, paler the farther they are. */
function drawTargets(pen, seen) {
  pen.lineWidth = 1;
  for (let i = 0; i < seen.length; i += 3) {
    const grey = Math.round(107 - 42 * seen[i + 2]);
    pen.strokeStyle = `rgb(${grey},${grey + 5},${grey + 12})`;
    pen.strokeRect(seen[i] - 2, seen[i + 1] - 2, 4, 4);
  }
}

function dot(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
  pen.stroke();
}

/** The sides of the cell that repeats, paler the farther they are. */
function drawBox(pen, seen) {
  pen.lineWidth = 1.2;
  for (let i = 0; i < seen.length; i += 6) {
    const grey = Math.round(160 - 50 * (seen[i + 2] + seen[i + 5]) / 2);
    pen.strokeStyle = `rgb(${grey},${grey + 6},${grey + 14})`;
    pen.beginPath();
    pen.moveTo(seen[i], seen[i + 1]);
    pen.lineTo(seen[i + 3], seen[i + 4]);
    pen.stroke();
  }
}

/** What is drawn over the object. */
function draw(pen, scene, view, chosen) {
  pen.clearRect(0, 0, view.width, view.height);
  drawBox(pen, project(scene.box, view));
  if (scene.targetAt !== scene.sourceAt && scene.targets <= MOST_SQUARES) drawTargets(pen, project(scene.targetAt, view));
  if (chosen.target >= 0 && scene.ptr.length > 1) drawChosen(pen, scene, view, chosen);
}

function drawChosen(pen, scene, view, chosen) {
  const read = readBy(scene, chosen.target, chosen.head).slice(-MOST_SQUARES);
  const most = darkest(scene, read, chosen.relative);
  const place = (at, i) => project(at.subarray(3 * i, 3 * i + 3), view);
  const [x, y] = place(scene.targetAt, chosen.target);
  if (chosen.painted) read.length = 0;
  const shareOf = (weight) => (scene.weight === null ? 0.6 : weight / most);
  const dots = read.map(({ source, weight }) => [...place(scene.sourceAt, source), shareOf(weight)]);
  for (const [sx, sy, , share] of dots) {
    pen.strokeStyle = colourOf(share);
    pen.lineWidth = 1 + 1.6 * share ** 2;
    pen.beginPath();
    pen.moveTo(sx, sy);
    pen.lineTo(x, y);
    pen.stroke();
  }
  pen.strokeStyle = INK;
  pen.lineWidth = 0.8;
  for (const [sx, sy, , share] of dots) {
    pen.fillStyle = colourOf(share);
    dot(pen, sx, sy, 2.5 + 3.5 * Math.sqrt(share));
  }
  pen.fillStyle = CHOSEN;
  pen.lineWidth = 1.4;
  pen.fillRect(x - 5, y - 5, 10, 10);
  pen.strokeRect(x - 5, y - 5, 10, 10);
}

/** The weight that is drawn darkest: the top of the scale, as of all pictures, or the largest that the target has. */
function darkest(scene, read, relative) {
  return (relative && read.length && read[read.length - 1].weight) || scene.top;
}

/** What is chosen, in words. */
function wordsOn(scene, chosen) {
  if (scene.name === null) return chosen.target < 0 ? "" : `Node ${chosen.target}.`;
  if (chosen.target < 0) return "Click a node to see what it reads.";
  const read = readBy(scene, chosen.target, chosen.head);
  const said = `Target ${chosen.target} reads ${read.length} source${read.length === 1 ? "" : "s"}`;
  if (scene.weight === null || read.length === 0) return `${said}.`;
  const top = read.slice(-5).reverse().map(({ source, weight }) => `${source} (${weight.toFixed(3)})`);
  return `${said}; the heaviest: ${top.join(", ")}.`;
}

// --- the page

async function start() {
  const data = JSON.parse(document.getElementById("data").textContent), sets = await setsOf(data);
  const painter = painterOf(document.getElementById("object"));
  const which = document.getElementById("which"), color = document.getElementById("color");
  const canvas = document.getElementById("picture"), words = document.getElementById("words");
  const asked = document.getElementById("target"), head = document.getElementById("head");
  const relative = document.getElementById("relative"), legend = document.getElementById("legend");
  const pen = canvas.getContext("2d");
  let scene = await sceneOf(data, sets, 0), waiting = false;
  let view = startOf(scene);
  const chosen = { target: data.target, head: -1, relative: true, painted: false };
  const held = new Map(); // pointers that are down, by id
  let moved = 0, resting = null; // a timer while the picture moves

  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const sharp = window.devicePixelRatio || 1;
      [view.width, view.height] = [canvas.clientWidth, canvas.clientHeight];
      [canvas.width, canvas.height] = [Math.round(view.width * sharp), Math.round(view.height * sharp)];
      pen.setTransform(sharp, 0, 0, sharp, 0, 0);
      if (painter && painter.draw(view, sharp, resting !== null)) setTimeout(redraw);
      draw(pen, scene, view, chosen);
    });
  }

  /** Show another graph, of other nodes perhaps. */
  async function showGraph(i) {
    scene = await sceneOf(data, sets, i);
    if (chosen.target >= scene.targets) chosen.target = -1;
    asked.max = scene.targets - 1;
    head.length = 1;
    for (let h = 0; h < scene.heads; h++) head.add(new Option(`head ${h}`, h));
    chosen.head = -1;
    document.querySelectorAll(".weights").forEach((part) => { part.hidden = scene.weight === null; });
    const set = sets[scene.from], last = color.value;
    color.length = 0;
    if (scene.weight !== null && set.faces.length) color.add(new Option("the weights", "weights"));
    set.colors.forEach((each, place) => color.add(new Option(each.name, place)));
    color.value = color.options[0].value;
    for (const { value } of color.options) if (String(value) === last) color.value = last;
    document.querySelectorAll(".colors").forEach((part) => { part.hidden = color.options.length < 2; });
    showColor();
    describe();
  }

  function showColor() {
    const set = sets[scene.from];
    chosen.painted = color.value === "weights";
    document.querySelectorAll(".ramp").forEach((part) => { part.className = chosen.painted ? "ramp heat" : "ramp"; });
    const shown = set.colors[Number(color.value) || 0];
    const own = set.faces.length > 0 && !chosen.painted && shown.rgb.length !== set.at.length;
    if (painter) {
      painter.show(set, own);
      painter.tint(chosen.painted ? heatOf(scene, chosen) : shown.rgb, own);
    }
    legend.innerHTML = chosen.painted ? "" : shown.legend;
    redraw();
  }

  /** Hide the labels that are not ticked. */
  function showLabels() {
    const shown = sets[scene.from].colors[Number(color.value) || 0];
    const boxes = [...legend.querySelectorAll("input")].filter((box) => !box.checked);
    const hidden = ofColours(shown.rgb, boxes.map((box) => JSON.parse(box.value)));
    if (painter) painter.hide(hidden, shown.rgb.length !== sets[scene.from].at.length);
    redraw();
  }

  function choose(target) {
    if (!(Number.isInteger(target) && target >= 0 && target < scene.targets)) return;
    chosen.target = target;
    asked.value = target;
    describe();
  }

  function describe() {
    words.textContent = wordsOn(scene, chosen);
    const read = chosen.target < 0 ? [] : readBy(scene, chosen.target, chosen.head);
    const most = darkest(scene, read, chosen.relative);
    document.getElementById("most").textContent = most === 1 ? "1" : most.toFixed(3);
    if (painter && chosen.painted) painter.tint(heatOf(scene, chosen), false);
    redraw();
  }

  /** Draw at once, a part of it where all is slow; all of it when the picture rests. */
  function move() {
    clearTimeout(resting);
    resting = setTimeout(() => { resting = null; redraw(); }, 250);
    redraw();
  }

  function zoom(factor) {
    const before = view.zoom;
    view.zoom = Math.min(200, Math.max(0.2, before * factor));
    view.shift = view.shift.map((part) => (part * view.zoom) / before); // the middle stays
    move();
  }

  function drag(right, down, pan) {
    if (pan || scene.flat) view.shift = [view.shift[0] + right, view.shift[1] + down];
    else view.turn = turned(view.turn, right / 150, down / 150);
    move();
  }

  function look() {
    if (chosen.target >= 0) view = lookingAt(scene, view, chosen.target);
    redraw();
  }

  function reset() {
    view = fitted(scene, { ...startOf(scene), width: canvas.clientWidth, height: canvas.clientHeight });
    redraw();
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, [event.clientX, event.clientY]);
    if (held.size === 1) moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return;
    const [x, y] = held.get(event.pointerId);
    const [right, down] = [event.clientX - x, event.clientY - y];
    moved += Math.abs(right) + Math.abs(down);
    if (held.size === 1) drag(right, down, event.shiftKey);
    else if (held.size === 2) {
      const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const before = Math.hypot(x - other[0], y - other[1]);
      zoom(Math.hypot(event.clientX - other[0], event.clientY - other[1]) / Math.max(1, before));
      drag(right / 2, down / 2, true);
    }
    held.set(event.pointerId, [event.clientX, event.clientY]);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held.size === 1 && moved < 6) {
      const box = canvas.getBoundingClientRect();
      const found = pick(project(scene.targetAt, view), event.clientX - box.left, event.clientY - box.top, event.pointerType === "mouse" ? 12 : 24);
      if (found >= 0) choose(found);
    }
    held.delete(event.pointerId);
  });
  canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015)));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-15, 0], ArrowRight: [15, 0], ArrowUp: [0, -15], ArrowDown: [0, 15] }[event.key];
    if (step) drag(...step, event.shiftKey);
    else if (event.key === "+" || event.key === "=") zoom(1.2);
    else if (event.key === "-") zoom(1 / 1.2);
    else if (event.key === "0") reset();
    else if (event.key === "Enter") look();
    else return;
    event.preventDefault();
  });
  asked.addEventListener("input", () => { if (asked.value !== "") choose(Number(asked.value)); });
  head.addEventListener("change", () => { chosen.head = Number(head.value); describe(); });
  relative.addEventListener("change", () => { chosen.relative = relative.checked; describe(); });
  document.getElementById("reset").addEventListener("click", reset);
  document.getElementById("look").addEventListener("click", look);
  window.addEventListener("resize", redraw);

  which.addEventListener("change", () => showGraph(Number(which.value)));
  color.addEventListener("change", showColor);
  legend.addEventListener("change", showLabels);
  data.graphs.forEach((graph, i) => which.add(new Option(graph.name, i)));
  document.querySelectorAll(".several").forEach((part) => { part.hidden = data.graphs.length < 2; });
  document.querySelectorAll(".reads").forEach((part) => { part.hidden = data.graphs[0].name === null; });
  relative.checked = true;
  await showGraph(0);
  reset();
  if (chosen.target >= 0) {
    choose(chosen.target);
    view = fitted(scene, { ...view, turn: lookingAt(scene, view, chosen.target).turn });
  }
  if (painter === null) words.textContent += " This browser has no WebGL 2, which draws the nodes and faces.";
}

const started = typeof document === "undefined" ? null : start();
if (typeof module !== "undefined") {
  module.exports = { setsOf, sceneOf, readBy, lookingFrom, startOf, turned, project, lookingAt, fitted, heatOf, pick, draw, wordsOn, start };
}
