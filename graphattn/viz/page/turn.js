// A graph in space: turn it, choose a target, see its sources. The page holds the data; nothing is loaded.
"use strict";

const RAMP = [[211, 223, 240], [122, 165, 216], [43, 98, 168], [11, 28, 51]]; // weak to strong, by lightness
const INK = "#1f2933", CHOSEN = "#D55E00";
const DEPTHS = 12, GREYS = 24;

// --- data

/** Base64 of little-endian numbers as a typed array. */
function decode(text, Kind) {
  return new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

/** The data block as typed arrays; `targetAt` is `sourceAt` itself where targets are the same points. */
function sceneOf(data) {
  const sourceAt = decode(data.sourceAt, Float32Array);
  return {
    ...data,
    sourceAt,
    targetAt: data.targetAt === null ? sourceAt : decode(data.targetAt, Float32Array),
    faces: decode(data.faces, Uint32Array),
    ptr: decode(data.ptr, Uint32Array),
    source: decode(data.source, Uint32Array),
    weight: data.weight === null ? null : decode(data.weight, Uint16Array),
    top: data.top,
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
  const turn = scene.flat ? [1, 0, 0, 0, 1, 0, 0, 0, 1] : lookingFrom(25, -60);
  return { turn, zoom: 1, shift: [0, 0], width: 800, height: 600 };
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

/** Indices by a number in [-1, 1], in `bins` steps, smallest first: a counting sort. */
function byDepth(depth, bins) {
  const bin = Uint32Array.from(depth, (z) => Math.min(bins - 1, Math.max(0, Math.floor(((z + 1) / 2) * bins))));
  const first = new Uint32Array(bins + 1), order = new Uint32Array(depth.length);
  for (const each of bin) first[each + 1]++;
  for (let i = 0; i < bins; i++) first[i + 1] += first[i];
  bin.forEach((each, i) => { order[first[each]++] = i; });
  return { order, bin };
}

// --- drawing

/** A colour of the ramp; `share` 0 is weak and 1 strong. */
function colourOf(share) {
  const place = Math.min(1, Math.max(0, share)) * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(place));
  const mixed = RAMP[low].map((part, i) => Math.round(part + (place - low) * (RAMP[low + 1][i] - part)));
  return `rgb(${mixed.join(",")})`;
}

/** Opaque faces from the farthest to the nearest; light falls from the upper left, on either side of a face. */
function drawFaces(pen, faces, seen, view) {
  const count = faces.length / 3, depth = new Float32Array(count), light = new Float32Array(count);
  const scale = pixels(view);
  for (let f = 0; f < count; f++) {
    const [a, b, c] = [3 * faces[3 * f], 3 * faces[3 * f + 1], 3 * faces[3 * f + 2]];
    depth[f] = (seen[a + 2] + seen[b + 2] + seen[c + 2]) / 3;
    const [px, py, pz] = [seen[b] - seen[a], seen[b + 1] - seen[a + 1], scale * (seen[b + 2] - seen[a + 2])];
    const [qx, qy, qz] = [seen[c] - seen[a], seen[c + 1] - seen[a + 1], scale * (seen[c + 2] - seen[a + 2])];
    const [nx, ny, nz] = [py * qz - pz * qy, pz * qx - px * qz, px * qy - py * qx];
    light[f] = Math.abs(-0.35 * nx - 0.45 * ny - 0.82 * nz) / (Math.hypot(nx, ny, nz) || 1);
  }
  pen.lineWidth = 0.6;
  const outlined = scale * Math.sqrt(12 / count) > 14; // as on a unit sphere: faces large enough to tell apart
  for (const f of byDepth(depth, 4096).order) {
    const grey = 150 + Math.round((Math.round(light[f] * GREYS) / GREYS) * 85);
    pen.fillStyle = `rgb(${grey},${grey + 3},${grey + 7})`;
    pen.strokeStyle = outlined ? "#98a3b0" : pen.fillStyle; // over the seams between faces
    pen.beginPath();
    for (let i = 0; i < 3; i++) pen.lineTo(seen[3 * faces[3 * f + i]], seen[3 * faces[3 * f + i] + 1]);
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
}

/** All nodes, the far ones paler; sources square, targets of their own open. */
function drawNodes(pen, seen, side, open) {
  const { order, bin } = byDepth(seen.filter((_, i) => i % 3 === 2), DEPTHS);
  let last = -1;
  for (const i of order) {
    if (bin[i] !== last) {
      last = bin[i];
      const grey = (open ? 150 : 205) - Math.round((last / (DEPTHS - 1)) * 85);
      pen.fillStyle = pen.strokeStyle = `rgb(${grey},${grey + 5},${grey + 12})`;
      pen.lineWidth = 1;
    }
    const [x, y] = [seen[3 * i] - side / 2, seen[3 * i + 1] - side / 2];
    if (open) pen.strokeRect(x, y, side, side);
    else pen.fillRect(x, y, side, side);
  }
}

function dot(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
  pen.stroke();
}

/** The picture: surface or nodes, the edges into the target, its sources, the target. */
function draw(pen, scene, view, chosen) {
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, view.width, view.height);
  const sources = project(scene.sourceAt, view);
  const targets = scene.targetAt === scene.sourceAt ? sources : project(scene.targetAt, view);
  const side = Math.min(7, Math.max(1.6, 120 / Math.sqrt(scene.sources))) * Math.sqrt(view.zoom);
  if (scene.faces.length) drawFaces(pen, scene.faces, sources, view);
  else drawNodes(pen, sources, side, false);
  if (targets !== sources) drawNodes(pen, targets, Math.max(3, side), true);
  if (chosen.target >= 0) drawChosen(pen, scene, sources, targets, chosen);
  return targets;
}

function drawChosen(pen, scene, sources, targets, chosen) {
  const read = readBy(scene, chosen.target, chosen.head);
  const most = darkest(scene, read, chosen.relative);
  const [x, y] = [targets[3 * chosen.target], targets[3 * chosen.target + 1]];
  const shareOf = (weight) => (scene.weight === null ? 0.6 : weight / most);
  for (const { source, weight } of read) {
    pen.strokeStyle = colourOf(shareOf(weight));
    pen.lineWidth = 1 + 1.6 * shareOf(weight) ** 2;
    pen.beginPath();
    pen.moveTo(sources[3 * source], sources[3 * source + 1]);
    pen.lineTo(x, y);
    pen.stroke();
  }
  pen.strokeStyle = INK;
  pen.lineWidth = 0.8;
  for (const { source, weight } of read) {
    pen.fillStyle = colourOf(shareOf(weight));
    dot(pen, sources[3 * source], sources[3 * source + 1], 2.5 + 3.5 * Math.sqrt(shareOf(weight)));
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
  if (chosen.target < 0) return "Click a node to see what it reads.";
  const read = readBy(scene, chosen.target, chosen.head);
  const said = `Target ${chosen.target} reads ${read.length} source${read.length === 1 ? "" : "s"}`;
  if (scene.weight === null || read.length === 0) return `${said}.`;
  const top = read.slice(-5).reverse().map(({ source, weight }) => `${source} (${weight.toFixed(3)})`);
  return `${said}; the heaviest: ${top.join(", ")}.`;
}

// --- the page

function start() {
  const scene = sceneOf(JSON.parse(document.getElementById("data").textContent));
  const canvas = document.getElementById("picture"), words = document.getElementById("words");
  const asked = document.getElementById("target"), head = document.getElementById("head");
  const relative = document.getElementById("relative");
  const pen = canvas.getContext("2d");
  let view = startOf(scene), shown = new Float32Array(0), waiting = false;
  const chosen = { target: scene.target, head: -1, relative: false };
  const held = new Map(); // pointers that are down, by id
  let moved = 0;

  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const sharp = window.devicePixelRatio || 1;
      [view.width, view.height] = [canvas.clientWidth, canvas.clientHeight];
      [canvas.width, canvas.height] = [Math.round(view.width * sharp), Math.round(view.height * sharp)];
      pen.setTransform(sharp, 0, 0, sharp, 0, 0);
      shown = draw(pen, scene, view, chosen);
    });
  }

  function choose(target) {
    if (!(Number.isInteger(target) && target >= 0 && target < scene.targets)) return;
    chosen.target = target;
    asked.value = target;
    tell();
  }

  function tell() {
    words.textContent = wordsOn(scene, chosen);
    const read = chosen.target < 0 ? [] : readBy(scene, chosen.target, chosen.head);
    const most = darkest(scene, read, chosen.relative);
    document.getElementById("most").textContent = most === 1 ? "1" : most.toFixed(3);
    redraw();
  }

  function zoom(factor) {
    const before = view.zoom;
    view.zoom = Math.min(200, Math.max(0.2, before * factor));
    view.shift = view.shift.map((part) => (part * view.zoom) / before); // the middle stays
    redraw();
  }

  function drag(right, down, pan) {
    if (pan || scene.flat) view.shift = [view.shift[0] + right, view.shift[1] + down];
    else view.turn = turned(view.turn, right / 150, down / 150);
    redraw();
  }

  function look() {
    if (chosen.target >= 0) view = lookingAt(scene, view, chosen.target);
    redraw();
  }

  function reset() {
    view = startOf(scene);
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
      const found = pick(shown, event.clientX - box.left, event.clientY - box.top, event.pointerType === "mouse" ? 12 : 24);
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
  head.addEventListener("change", () => { chosen.head = Number(head.value); tell(); });
  relative.addEventListener("change", () => { chosen.relative = relative.checked; tell(); });
  document.getElementById("reset").addEventListener("click", reset);
  document.getElementById("look").addEventListener("click", look);
  window.addEventListener("resize", redraw);

  asked.max = scene.targets - 1;
  if (scene.weight === null) document.querySelectorAll(".weights").forEach((part) => { part.hidden = true; });
  for (let h = 0; h < scene.heads; h++) head.add(new Option(`head ${h}`, h));
  if (chosen.target >= 0) choose(chosen.target);
  tell();
}

if (typeof document !== "undefined") start();
if (typeof module !== "undefined") {
  module.exports = { decode, sceneOf, readBy, lookingFrom, startOf, turned, project, lookingAt, pick, byDepth, colourOf, draw, wordsOn, start };
}
