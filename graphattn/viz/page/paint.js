// The object itself in WebGL 2: faces, lit smoothly up to their creases, or balls sized by their depth. Data go to the
// card once; a turn of the object is one matrix.
"use strict";

const MOST_MOVING = 20000, SLOW = 60; // points drawn while they turn, where a frame takes more milliseconds
const FEW_FACES = 5000; // of fewer, all are drawn while they turn

const BODY = `#version 300 es
layout(location = 0) in vec3 at;
layout(location = 1) in vec3 normal;
layout(location = 2) in vec3 color;
uniform mat3 turn;      // rows right, up, towards the eye
uniform vec4 frame;     // x and y of the middle, x and y of a unit, all in clip space
uniform float side;     // pixels of a point in the middle of the picture; 0 for faces
out vec3 seen;
out vec3 tint;
out float depth;
void main() {
  vec3 place = turn * at;
  seen = turn * normal;
  tint = color;
  depth = place.z;
  gl_Position = vec4(frame.xy + frame.zw * place.xy, -0.45 * place.z, 1.0);
  gl_PointSize = max(1.0, side * (1.0 + 0.45 * place.z));
}`;

// The same light as in the pictures of matplotlib: object_image.py.
const LIT = `#version 300 es
precision highp float;
in vec3 seen;
in vec3 tint;
in float depth;
uniform float side;
out vec4 shown;
const vec3 light = vec3(-0.38, 0.52, 0.77);
vec3 lit(vec3 own, vec3 n) {
  float share = clamp(dot(n, light), 0.0, 1.0);
  return clamp(own * (0.36 + 0.70 * mix(share, n.z, 0.4)) + 0.10 * pow(share, 12.0), 0.0, 1.0);
}
void main() {
  if (side > 0.0) {
    vec2 p = vec2(2.0, -2.0) * (gl_PointCoord - 0.5);
    float out2 = dot(p, p);
    if (side > 2.0 && out2 > 1.0) discard;
    vec3 own = side > 3.0 ? 0.5 * tint + 0.5 * lit(tint, vec3(p, sqrt(max(0.0, 1.0 - out2)))) : tint;
    shown = vec4(mix(own, vec3(1.0), 0.35 * clamp(0.5 - 0.5 * depth, 0.0, 1.0)), 1.0);
  } else {
    vec3 n = normalize(seen);
    shown = vec4(lit(tint, n.z < 0.0 ? -n : n), 1.0);
  }
}`;

/**
 * What the card draws of a set of nodes: vertices, each a node on one side of a crease. A corner of a face with a colour
 * of its own is a vertex of its own.
 */
function verticesOf(set, own) {
  if (!set.faces.length) return { node: null, at: set.at, normal: null, index: null };
  const vertex = own ? set.faces : Uint32Array.from(set.node, (_, i) => i);
  const node = vertex.map((v) => set.node[v]);
  return {
    node, at: gathered(set.at, node), normal: gathered(set.normal, vertex),
    index: own ? set.faces.map((_, i) => i) : set.faces,
  };
}

/** Rows of three numbers, by their places. */
function gathered(rows, places) {
  const found = new rows.constructor(3 * places.length);
  for (let i = 0; i < places.length; i++) {
    for (let k = 0; k < 3; k++) found[3 * i + k] = rows[3 * places[i] + k];
  }
  return found;
}

/** Corners of far fewer faces, or a part of the points, to turn where all of them are slow; `null` of few. */
function fewOf(at, index) {
  if (index === null) {
    const step = Math.floor(at.length / 3 / MOST_MOVING);
    return step < 2 ? null : Uint32Array.from({ length: MOST_MOVING }, (_, i) => i * step);
  }
  if (index.length < 3 * FEW_FACES) return null;
  const first = new Map(), cells = 16, kept = []; // vertices of a cell of the ball's box become one
  const cell = (v) => [0, 1, 2].reduce((key, k) => key * 64 + Math.floor((at[3 * v + k] + 1) * cells), 0);
  const nearest = new Uint32Array(at.length / 3);
  for (let v = 0; v < nearest.length; v++) {
    const key = cell(v);
    if (!first.has(key)) first.set(key, v);
    nearest[v] = first.get(key);
  }
  for (let f = 0; f < index.length; f += 3) {
    const [a, b, c] = [nearest[index[f]], nearest[index[f + 1]], nearest[index[f + 2]]];
    if (a !== b && b !== c && c !== a) kept.push(a, b, c);
  }
  return Uint32Array.from(kept);
}

/**
 * What is drawn of `verticesOf` where some nodes, or faces with `own` colours, are hidden: points, or the corners of the
 * faces of which no corner is hidden.
 */
function indexWithout(held, hidden, own) {
  if (held.index === null) {
    const shown = [];
    for (let i = 0; i < hidden.length; i++) if (!hidden[i]) shown.push(i);
    return Uint32Array.from(shown);
  }
  const kept = [];
  for (let f = 0; f < held.index.length; f += 3) {
    const corners = held.index.subarray(f, f + 3);
    if (!(own ? hidden[f / 3] : corners.some((v) => hidden[held.node[v]]))) kept.push(...corners);
  }
  return Uint32Array.from(kept);
}

/** True for each node, or face, whose colour is one of some bytes of red, green and blue. */
function ofColours(rgb, colours) {
  const wanted = new Set(colours.map(([r, g, b]) => (r << 16) + (g << 8) + b));
  const found = new Uint8Array(rgb.length / 3);
  for (let i = 0; i < found.length; i++) found[i] = wanted.has((rgb[3 * i] << 16) + (rgb[3 * i + 1] << 8) + rgb[3 * i + 2]);
  return found;
}

/** Whether the browser draws without a graphics card. */
function isSoftware() {
  const gl = document.createElement("canvas").getContext("webgl2");
  const info = gl && gl.getExtension("WEBGL_debug_renderer_info");
  return Boolean(info) && /swiftshader|llvmpipe|software/i.test(gl.getParameter(info.UNMASKED_RENDERER_WEBGL));
}

/** A painter on a canvas: `show(set)`, `tint(rgb)`, `hide(nodes)`, `draw(view, sharp, moving)`; `null` where there is no WebGL 2. */
function painterOf(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: !isSoftware() });
  if (!gl) return null;
  const program = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, BODY], [gl.FRAGMENT_SHADER, LIT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
  gl.useProgram(program);
  gl.enable(gl.DEPTH_TEST);
  gl.clearColor(1, 1, 1, 1);
  const uniform = (name) => gl.getUniformLocation(program, name);
  const [turn, frame, side] = ["turn", "frame", "side"].map(uniform);
  const [places, normals, colors, corners, some] = Array.from({ length: 5 }, () => gl.createBuffer());
  let held = null, set = null;

  function fill(buffer, place, data, parts, kind, whole) {
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
    gl.vertexAttribPointer(place, parts, kind, whole, 0, 0);
    gl.enableVertexAttribArray(place);
  }

  function show(next, own) {
    set = next;
    held = verticesOf(set, own);
    fill(places, 0, held.at, 3, gl.FLOAT, false);
    held.few = fewOf(held.at, held.index);
    held.seen = held.slow = null;
    held.shown = held.index;
    list(some, held.few);
    list(corners, held.shown);
    if (held.normal === null) gl.disableVertexAttribArray(1);
    else fill(normals, 1, held.normal, 3, gl.BYTE, true);
  }

  /** Draw all but the hidden nodes, or faces with `own` colours; a few of them do not stand for those that are left. */
  function hide(hidden, own) {
    const isPart = hidden.some(Boolean);
    held.few = isPart ? null : fewOf(held.at, held.index);
    held.seen = held.slow = null;
    held.shown = isPart ? indexWithout(held, hidden, own) : held.index;
    list(some, held.few);
    list(corners, held.shown);
  }

  function list(buffer, index) {
    if (index === null) return;
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, index, gl.STATIC_DRAW);
  }

  /** All of it, or a few where it moves; milliseconds where `timed`. */
  function drawParts(few, timed) {
    const start = performance.now();
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const kind = held.index ? gl.TRIANGLES : gl.POINTS, index = few ? held.few : held.shown;
    if (index) {
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, few ? some : corners);
      gl.drawElements(kind, index.length, gl.UNSIGNED_INT, 0);
    } else gl.drawArrays(kind, 0, set.at.length / 3);
    if (timed) gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    return performance.now() - start;
  }

  /** Colours of nodes, bytes (N, 3); or of faces, which then have vertices of their own. */
  function tint(rgb, own) {
    let spread = rgb;
    if (own) spread = Uint8Array.from({ length: 9 * (rgb.length / 3) }, (_, i) => rgb[3 * Math.floor(i / 9) + (i % 3)]);
    else if (held.node) spread = gathered(rgb, held.node);
    fill(colors, 2, spread, 3, gl.UNSIGNED_BYTE, true);
  }

  /** True where it drew a few of many, at first or while they move: more is to come. */
  function draw(view, sharp, moving) {
    const [width, height] = [Math.round(view.width * sharp), Math.round(view.height * sharp)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    gl.viewport(0, 0, width, height);
    if (!set || set.at.length === 0) return false;
    const unit = 2 * pixels(view), r = view.turn;
    gl.uniformMatrix3fv(turn, false, [r[0], r[3], r[6], r[1], r[4], r[7], r[2], r[5], r[8]]);
    gl.uniform4f(frame, (2 * view.shift[0]) / view.width, (-2 * view.shift[1]) / view.height, unit / view.width, unit / view.height);
    const first = Boolean(held.few) && held.seen === null;
    const few = first || Boolean(moving && held.few && held.slow);
    const spread = (set.room * unit) / 2 * (few && !held.index ? Math.sqrt(set.at.length / 3 / held.few.length) : 1);
    gl.uniform1f(side, held.index ? 0 : sharp * Math.min(24, Math.max(1.6, spread)));
    held.seen = true;
    if (!few && held.few && held.slow === null) {
      held.slow = drawParts(false, true) > SLOW && drawParts(false, true) > SLOW; // the first has the way to the card
    } else drawParts(few, false);
    return first;
  }

  return { show, tint, hide, draw };
}
