// The object itself in WebGL 2: faces, smoothly lit, or balls sized by their depth. Data go to the card once; a turn
// of the object is one matrix.
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
  return clamp(own * (0.42 + 0.64 * share) + 0.10 * pow(share, 12.0), 0.0, 1.0);
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

/** Normals of vertices, weighted by the angles of faces: smooth over the surface. */
function normalsOf(at, faces) {
  const normals = new Float32Array(at.length);
  for (let f = 0; f < faces.length; f += 3) {
    for (let i = 0; i < 3; i++) {
      const [a, b, c] = [3 * faces[f + i], 3 * faces[f + ((i + 1) % 3)], 3 * faces[f + ((i + 2) % 3)]];
      const ux = at[b] - at[a], uy = at[b + 1] - at[a + 1], uz = at[b + 2] - at[a + 2];
      const vx = at[c] - at[a], vy = at[c + 1] - at[a + 1], vz = at[c + 2] - at[a + 2];
      const nx = uy * vz - uz * vy, ny = uz * vx - ux * vz, nz = ux * vy - uy * vx;
      const size = Math.hypot(nx, ny, nz) || 1;
      const angle = Math.atan2(size, ux * vx + uy * vy + uz * vz) / size;
      normals[a] += angle * nx;
      normals[a + 1] += angle * ny;
      normals[a + 2] += angle * nz;
    }
  }
  return normals;
}

/**
 * What the card draws of a set of nodes: vertices, each a node seen in one way. A corner of a crease, or of a face
 * with a colour of its own, is a vertex of its own.
 */
function verticesOf(at, faces, own) {
  if (!faces.length) return { node: null, at, normal: null, index: null };
  const smooth = normalsOf(at, faces);
  const node = own ? [] : Array.from({ length: at.length / 3 }, (_, i) => i);
  const normal = own ? [] : Array.from(smooth), index = new Uint32Array(faces);
  for (let f = 0; f < faces.length; f += 3) {
    const [a, b, c] = [3 * faces[f], 3 * faces[f + 1], 3 * faces[f + 2]];
    const ux = at[b] - at[a], uy = at[b + 1] - at[a + 1], uz = at[b + 2] - at[a + 2];
    const vx = at[c] - at[a], vy = at[c + 1] - at[a + 1], vz = at[c + 2] - at[a + 2];
    const flat = [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx];
    const size = Math.hypot(flat[0], flat[1], flat[2]) || 1;
    for (let i = 0; i < 3; i++) {
      const v = 3 * faces[f + i];
      const long = Math.hypot(smooth[v], smooth[v + 1], smooth[v + 2]) || 1;
      const creased = (smooth[v] * flat[0] + smooth[v + 1] * flat[1] + smooth[v + 2] * flat[2]) / (size * long) < 0.62;
      if (!creased && !own) continue;
      index[f + i] = node.length;
      node.push(faces[f + i]);
      if (creased) normal.push(flat[0], flat[1], flat[2]);
      else normal.push(smooth[v], smooth[v + 1], smooth[v + 2]);
    }
  }
  const placed = new Float32Array(3 * node.length);
  node.forEach((n, i) => placed.set(at.subarray(3 * n, 3 * n + 3), 3 * i));
  return { node, at: placed, normal: new Float32Array(normal), index };
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

/** Whether the browser draws without a graphics card. */
function isSoftware() {
  const gl = document.createElement("canvas").getContext("webgl2");
  const info = gl && gl.getExtension("WEBGL_debug_renderer_info");
  return Boolean(info) && /swiftshader|llvmpipe|software/i.test(gl.getParameter(info.UNMASKED_RENDERER_WEBGL));
}

/** A painter on a canvas: `show(set)`, `tint(rgb)`, `draw(view, sharp, moving)`; `null` where there is no WebGL 2. */
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
    held = verticesOf(set.at, set.faces, own);
    fill(places, 0, held.at, 3, gl.FLOAT, false);
    held.few = fewOf(held.at, held.index);
    held.slow = null;
    list(some, held.few);
    list(corners, held.index);
    if (held.normal === null) gl.disableVertexAttribArray(1);
    else fill(normals, 1, held.normal, 3, gl.FLOAT, false);
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
    const kind = held.index ? gl.TRIANGLES : gl.POINTS, index = few ? held.few : held.index;
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
    else if (held.node) {
      spread = new Uint8Array(3 * held.node.length);
      held.node.forEach((n, i) => spread.set(rgb.subarray(3 * n, 3 * n + 3), 3 * i));
    }
    fill(colors, 2, spread, 3, gl.UNSIGNED_BYTE, true);
  }

  function draw(view, sharp, moving) {
    const [width, height] = [Math.round(view.width * sharp), Math.round(view.height * sharp)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    gl.viewport(0, 0, width, height);
    if (!set || set.at.length === 0) return;
    const unit = 2 * pixels(view), r = view.turn;
    gl.uniformMatrix3fv(turn, false, [r[0], r[3], r[6], r[1], r[4], r[7], r[2], r[5], r[8]]);
    gl.uniform4f(frame, (2 * view.shift[0]) / view.width, (-2 * view.shift[1]) / view.height, unit / view.width, unit / view.height);
    if (held.few && held.slow === null) {
      drawParts(false, true); // the first time includes the way to the card
      held.slow = drawParts(false, true) > SLOW;
    }
    const few = Boolean(moving && held.few && held.slow);
    const spread = (0.7 * unit) / Math.sqrt(few && !held.index ? held.few.length : set.at.length / 3);
    gl.uniform1f(side, held.index ? 0 : sharp * Math.min(24, Math.max(1, spread)));
    drawParts(few, false);
  }

  return { show, tint, draw };
}
