// Axes, and lanes drawn on canvases. What a step of zooming costs is here.

// From a value of the axis to 0..1 of the whole, and from there to a pixel.
const share = (lane, value) => (view.axis === "time"
  ? (value - range.first) / (range.last - range.first)
  : (value - lane.first_offset) / Math.max(lane.end_offset - lane.first_offset, 1));
const valueAt = (lane, place) => (view.axis === "time"
  ? range.first + place * (range.last - range.first)
  : lane.first_offset + place * (lane.end_offset - lane.first_offset));
const placeAt = (x, width) => view.from + (x / width) * (view.to - view.from);

const iso = (ms, digits = 23) => {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : `${date.toISOString().slice(0, digits)}Z`;
};
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 12e4, 3e5, 6e5,
  9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 7776e6, 31536e6, 1e12];

function drawAxis() {
  const { ctx, width, height } = sized(axisCanvas, 24);
  ctx.fillStyle = css("--soft");
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  if (view.axis === "offset") {
    ctx.fillText("each lane from its log start to its log end", 2, height / 2);
    return;
  }
  const from = valueAt(null, view.from), to = valueAt(null, view.to);
  const wanted = (to - from) / Math.max(width / 150, 1);
  const step = STEPS.find((each) => each >= wanted) || STEPS[STEPS.length - 1];
  let day = "";
  for (let at = Math.ceil(from / step) * step; at < to; at += step) {
    const x = ((at - from) / (to - from)) * width;
    ctx.fillRect(x, height - 5, 1, 5);
    const text = clock(at, step, day);
    if (x + ctx.measureText(text).width < width) ctx.fillText(text, x + 3, height / 2 - 1);
    day = iso(at, 10);
  }
}

// The time of a tick as people say it: the date once a day, and as many digits as ticks differ in.
function clock(at, step, day) {
  const text = iso(at).replace("Z", ""), date = text.slice(0, 10);
  if (step >= 864e5 || text.length < 20) return date;
  const time = text.slice(11, step < 1e3 ? 23 : step < 6e4 ? 19 : 16);
  return `${date}Z` === day ? time : `${date} ${time}`;
}

const UNITS = [["d", 864e5], ["h", 36e5], ["min", 6e4], ["s", 1e3], ["ms", 1]];
function duration(ms) {
  const parts = [];
  let rest = Math.round(ms);
  for (const [name, unit] of UNITS) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (count) parts.push(`${count} ${name}`);
    if (parts.length === 2 || (parts.length && !count)) break;
  }
  return parts.join(" ") || "0 ms";
}

// Where there is anything on the whole axis, what is wrong above all else, and what is shown of it.
function drawMap() {
  const { ctx, width, height } = sized(mapCanvas, 16);
  const fill = (color, lane, value, tall) => {
    ctx.fillStyle = css(color);
    ctx.fillRect(Math.min(Math.max(share(lane, value), 0), 1) * width, height - tall, 2, tall);
  };
  const wrong = ["warning", "open", "hanging", "error"];
  for (const lane of lanes) {
    if (lane.kind !== "partition" || lane.box.hidden) continue;
    for (const each of lane.volume[view.axis] || []) fill("--volume", lane, each.from, 5);
  }
  for (const name of wrong) {
    for (const lane of lanes) {
      if (lane.kind !== "partition" || lane.box.hidden) continue;
      for (const [look, begin, behind] of lane.marks.spans) {
        if (look !== LOOK[name]) continue;
        for (let place = begin; place < behind; place++) {
          const value = lane.marks.at[view.axis][0][place];
          if (!Number.isNaN(value)) fill(LOOKS[look].color, lane, value, 13);
        }
      }
    }
  }
  ctx.strokeStyle = css("--focus");
  ctx.lineWidth = 2;
  ctx.strokeRect(view.from * width + 1, 1, Math.max((view.to - view.from) * width - 2, 3), height - 2);
  ctx.lineWidth = 1;
}

let colors = {}, hatches = {};
const css = (name) => colors[name]
  || (colors[name] = getComputedStyle(document.documentElement).getPropertyValue(name).trim());

function hatch(ctx, color) {
  if (!hatches[color]) {
    const tile = make("canvas", { width: 6, height: 6 });
    const inner = tile.getContext("2d");
    inner.strokeStyle = color;
    inner.lineWidth = 2;
    inner.beginPath();
    for (const at of [-6, 0, 6]) { inner.moveTo(at - 1, 7); inner.lineTo(at + 7, -1); }
    inner.stroke();
    hatches[color] = ctx.createPattern(tile, "repeat");
  }
  return hatches[color];
}

function sized(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = Math.max(canvas.clientWidth, 50);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return { ctx, width, height };
}

function drawLane(lane) {
  const { ctx, width, height } = sized(lane.canvas, lane.height);
  lane.stale = false;
  const span = view.to - view.from;
  const x = (value) => ((share(lane, value) - view.from) / span) * width;
  if (lane.kind === "partition") {
    if (lane.is_unread) { ctx.fillStyle = hatch(ctx, css("--unread")); ctx.fillRect(0, 0, width, TALL[0]); }
    drawHeld(ctx, lane, x, width, height);
    drawVolume(ctx, lane, x, width);
    if (view.axis === "offset") drawLines(ctx, lane, x, height);
  }
  drawMarks(ctx, lane, width);
}

function drawHeld(ctx, lane, x, width, height) {
  if (!lane.held || lane.held[view.axis] === null) return;
  const left = Math.max(x(lane.held[view.axis]), 0);
  ctx.fillStyle = css("--held");
  ctx.fillRect(left, 0, Math.max(width - left, 0), height);
}

function drawVolume(ctx, lane, x, width) {
  const bins = lane.volume[view.axis] || [], [, room] = lane.rows[0];
  const sums = new Float64Array(Math.ceil(width) + 1), backs = new Uint8Array(sums.length);
  for (const each of bins) {
    const left = Math.max(Math.floor(x(each.from)), 0);
    const right = Math.min(Math.max(Math.ceil(x(each.to)), left + 1), sums.length);
    const value = each.bytes / Math.max(right - left, 1);
    for (let at = left; at < right; at++) { sums[at] += value; backs[at] |= each.back; }
  }
  const top = sums.reduce((most, each) => Math.max(most, each), 0);
  ctx.fillStyle = css("--volume");
  for (let at = 0, start = 0; at < sums.length; at++) {
    if (sums[at] === sums[at + 1]) continue; // one rectangle for all pixels of a bin
    const tall = Math.max((sums[at] / top) * (room - 2), 1.5);
    if (sums[at]) ctx.fillRect(start, room - tall, at + 1 - start, tall);
    start = at + 1;
  }
  ctx.fillStyle = css("--doubtful");
  for (let at = 0; at < sums.length; at += 4) if (backs[at]) ctx.fillRect(at, room, 2, 2);
  ctx.fillStyle = css("--line");
  ctx.fillRect(0, room, width, 1);
}

function drawLines(ctx, lane, x, height) {
  ctx.font = "10px system-ui, sans-serif";
  for (const [name, offset] of lane.lines) {
    const at = x(offset), bound = ["HW", "recovery point", "read up to"].includes(name);
    ctx.fillStyle = hatch(ctx, css("--unread"));
    if (name === "log start") ctx.fillRect(0, 0, Math.max(at, 0), TALL[0]);
    if (name === "read up to") ctx.fillRect(Math.max(at, 0), 0, ctx.canvas.width, TALL[0]);
    ctx.strokeStyle = css(name === "LSO" ? "--open" : "--bound");
    ctx.setLineDash(bound ? [3, 3] : []);
    ctx.beginPath();
    ctx.moveTo(at, 0);
    ctx.lineTo(at, height);
    ctx.stroke();
    ctx.setLineDash([]);
  }
}

// Marks of a look are painted by pixels, not one by one: a step of zooming takes a sum for each mark
// and a rectangle for each run of pixels, however many marks there are, and in whatever order.
function drawMarks(ctx, lane, width) {
  const { marks } = lane, [left, right] = marks.at[view.axis];
  const from = valueAt(lane, view.from), to = valueAt(lane, view.to), scale = width / (to - from);
  for (const [look, begin, behind] of marks.spans) {
    const style = LOOKS[look], least = style.tick ? 1 : 2, labels = [];
    const cover = new Int32Array(width + 2 * BESIDE + 2), starts = new Uint8Array(cover.length);
    for (let place = begin; place < behind; place++) {
      if (!(left[place] <= to) || right[place] < from) continue;
      const start = Math.max(Math.min(Math.floor((left[place] - from) * scale), width - least), -BESIDE);
      const end = Math.min(Math.max(Math.ceil((right[place] - from) * scale), start + least), width + BESIDE);
      cover[start + BESIDE] += 1;
      cover[end + BESIDE] -= 1;
      if (style.triangle ? left[place] >= from : end - start > 3) starts[start + BESIDE] = 1;
      if (style.label && marks.label && end - start > 40) labels.push([place, start, end]);
    }
    paint(ctx, style, lane.rows[style.row], cover, starts);
    for (const [place, start, end] of labels) label(ctx, marks.label[place], start, end, lane);
  }
  if (view.selected && view.selected.lane === lane) drawSelected(ctx, lane, from, scale, width);
}

// From how many marks begin and end at each pixel to rectangles; then to where they begin.
function paint(ctx, style, [top, tall], cover, starts) {
  const color = css(style.color);
  ctx.fillStyle = style.hatch ? hatch(ctx, color) : color;
  ctx.strokeStyle = color;
  for (let at = 0, depth = 0, start = 0; at < cover.length; at++) {
    const before = depth;
    depth += cover[at];
    if (!before && depth) start = at - BESIDE;
    if (!before || depth) continue;
    const long = at - BESIDE - start;
    if (style.tick) ctx.fillRect(start, 0, long, TALL[0] - 14);
    else if (style.outline) ctx.strokeRect(start + 0.5, top + 1, Math.max(long - 1, 3), tall - 2);
    else if (!style.triangle) ctx.fillRect(start, top, long, tall);
    else if (long > 2) ctx.fillRect(start, 1, long, 1.5); // to where it ends: what a group has not read
  }
  if (!style.triangle && style.row !== ALONE) return;
  if (!style.triangle) ctx.fillStyle = css("--page");
  ctx.beginPath();
  for (let at = 0; at < starts.length; at++) {
    if (!starts[at]) continue;
    const x = at - BESIDE;
    if (style.triangle) {
      ctx.moveTo(x - 5, 0);
      ctx.lineTo(x + 5, 0);
      ctx.lineTo(x, 8);
    } else ctx.rect(x, top, 1, tall);
    at += 3; // closer ones would leave nothing of the bar
  }
  ctx.fill();
}

function label(ctx, text, start, end, lane) {
  const [top, tall] = lane.rows[ALONE];
  ctx.save();
  ctx.beginPath();
  ctx.rect(start + 4, top, end - start - 6, tall);
  ctx.clip();
  ctx.font = "10px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  ctx.fillStyle = css("--page");
  ctx.fillText(text, start + 4, top + tall / 2);
  ctx.restore();
}

function drawSelected(ctx, lane, from, scale, width) {
  const { place } = view.selected, marks = lane.marks;
  const [left, right] = marks.at[view.axis];
  const [top, tall] = lane.rows[LOOKS[marks.look[place]].row];
  const start = Math.max((left[place] - from) * scale, 0);
  const end = Math.min((right[place] - from) * scale, width);
  ctx.strokeStyle = css("--focus");
  ctx.lineWidth = 2;
  ctx.strokeRect(start - 3, top - 2, Math.max(end - start, 2) + 6, tall + 4);
  ctx.lineWidth = 1;
}

let pending = false;
function draw() {
  for (const lane of lanes) lane.stale = true;
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    drawVisible();
  });
}

function drawVisible() {
  drawAxis();
  drawMap();
  for (const lane of lanes) if (lane.stale && lane.near && !lane.box.hidden) drawLane(lane);
  const shown = $("shown");
  const percent = (each) => `${(each * 100).toFixed(1)} %`;
  shown.textContent = view.axis === "time"
    ? `${iso(valueAt(null, view.from), 19)} to ${iso(valueAt(null, view.to), 19)}, `
      + duration(valueAt(null, view.to) - valueAt(null, view.from))
    : `${percent(view.from)} to ${percent(view.to)} of each lane`;
}
