// Runs the page's own script on the page's own data, without a browser; prints what it did as JSON.
"use strict";
const fs = require("fs");
const [page, script, orders] = process.argv.slice(2);
const html = fs.readFileSync(page, "utf8");
const data = JSON.parse(/<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)[1]);
const paint = require("path").join(require("path").dirname(script), "paint.js");
require("vm").runInThisContext(fs.readFileSync(paint, "utf8").replace('"use strict";', ""));
const turn = require(script);
globalThis.painterOf = () => null; // there is no WebGL here
let sets, scene, view;

function recorder() {
  const calls = { fill: 0, stroke: 0, arc: [], lineTo: 0, moveTo: [], fillRect: 0, strokeRect: 0, bad: 0 };
  const pen = { clearRect() {}, setTransform() {}, beginPath() {}, closePath() {} };
  const finite = (...at) => { calls.bad += at.some((x) => !Number.isFinite(x)); };
  pen.fill = () => calls.fill++;
  pen.stroke = () => calls.stroke++;
  pen.arc = (x, y, r) => { finite(x, y, r); calls.arc.push([x, y, r]); };
  pen.moveTo = (x, y) => { finite(x, y); calls.moveTo.push([x, y]); };
  pen.lineTo = (x, y) => { finite(x, y); calls.lineTo++; };
  pen.fillRect = (...box) => { finite(...box); calls.fillRect++; };
  pen.strokeRect = (...box) => { finite(...box); calls.strokeRect++; };
  return { pen, calls };
}

/** Enough of a document for start(); `fire` sends an event as a browser would. */
function document_() {
  const parts = {};
  let { pen, calls } = recorder();
  const part = (id) => (parts[id] ??= {
    id, listeners: {}, options: [], value: "", textContent: "", clientWidth: 800, clientHeight: 600,
    addEventListener(name, listener) { this.listeners[name] = listener; },
    add(option) { this.options.push(option); },
    getContext() { return pen; }, setPointerCapture() {},
    getBoundingClientRect() { return { left: 0, top: 0 }; },
  });
  part("data").textContent = JSON.stringify(data);
  const hidden = {};
  return {
    document: { getElementById: part, querySelectorAll: () => [hidden] }, parts, hidden, calls: () => calls,
    fire(id, name, event) { parts[id].listeners[name]({ preventDefault() {}, pointerId: 1, ...event }); },
  };
}

const answers = {
  read: () => Array.from({ length: scene.targets }, (_, t) => turn.readBy(scene, t, orders_.head)),
  project: () => ["sourceAt", "targetAt"].map((side) => [...turn.project(scene[side], view)]),
  draw() {
    const { pen, calls } = recorder();
    turn.draw(pen, scene, view, { target: orders_.target, head: orders_.head, relative: orders_.relative });
    return calls;
  },
  look() {
    const closer = turn.lookingAt(scene, view, orders_.target);
    const seen = turn.project(scene.targetAt, closer);
    return { at: [...seen.slice(3 * orders_.target, 3 * orders_.target + 3)], zoom: closer.zoom };
  },
  turned: () => turn.turned(view.turn, orders_.right, orders_.down),
  picked: () => {
    const seen = turn.project(scene.targetAt, view);
    return Array.from({ length: scene.targets }, (_, t) => turn.pick(seen, seen[3 * t], seen[3 * t + 1], 12));
  },
  set: () => ({ ...sets[0], at: [...sets[0].at], faces: [...sets[0].faces], node: [...sets[0].node],
    normal: [...sets[0].normal], colors: sets[0].colors.map((each) => [...each.rgb]) }),
  fitted: () => turn.fitted(scene, view),
  heat: () => [...turn.heatOf(scene, { target: orders_.target, head: orders_.head, relative: orders_.relative })],
  async session() {
    const it = document_();
    Object.assign(globalThis, { document: it.document, window: { devicePixelRatio: 2, addEventListener() {} } });
    globalThis.requestAnimationFrame = (frame) => frame();
    globalThis.Option = function (text, value) { Object.assign(this, { text, value }); };
    await turn.start();
    const said = [it.parts.words.textContent], most = [it.parts.most.textContent];
    for (const [id, name, event, value] of orders_.events) {
      if (typeof value === "boolean") it.parts[id].checked = value;
      else if (value !== undefined) it.parts[id].value = value;
      it.fire(id, name, event);
      await new Promise((done) => setTimeout(done, name === "change" ? 20 : 0)); // another graph is decoded
      said.push(it.parts.words.textContent);
      most.push(it.parts.most.textContent);
    }
    return { said, most, heads: it.parts.head.options.map((o) => o.text), hidden: it.hidden.hidden === true, bad: it.calls().bad };
  },
};
const orders_ = JSON.parse(orders);
(async () => {
  sets = await turn.setsOf(data);
  scene = await turn.sceneOf(data, sets, 0);
  view = { ...turn.startOf(scene), ...(orders_.view ?? {}) };
  console.log(JSON.stringify(await answers[orders_.do]()));
})();
