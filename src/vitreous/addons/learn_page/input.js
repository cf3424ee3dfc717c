// --- The image: drawn by hand, chosen from the samples, or opened from a file. --------------------------------

const FINE = 4; // a drawing is reduced in blocks of 4x4, as the bundled digits were
const THICK = 5 / 32; // of the height: the pen with which drawings have as much ink as the bundled digits
const WIDEST = 3 / 4; // of the width: the outer columns of the bundled digits are empty

// A canvas of another size with an image drawn over all of it.
function canvasOf(width, height, draw) {
  const canvas = element("canvas", { width, height }),
    pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.imageSmoothingQuality = "high";
  draw(pen);
  return canvas;
}

// The image of a canvas as a model takes it: (C, H, W) in 0 ... 1.
function pixelsOf(canvas, config) {
  const [height, width] = config.image_size,
    same = canvas.width === width && canvas.height === height;
  const small = same
    ? canvas
    : canvasOf(width, height, (pen) => {
        pen.fillRect(0, 0, width, height);
        pen.drawImage(canvas, 0, 0, width, height);
      });
  const { data } = small.getContext("2d").getImageData(0, 0, width, height),
    plane = height * width,
    image = zeros(config.channels, height, width);
  for (let i = 0; i < plane; i++) {
    const r = data[4 * i],
      g = data[4 * i + 1],
      b = data[4 * i + 2];
    if (config.channels === 1) {
      image.data[i] = (r === g && g === b ? r : 0.299 * r + 0.587 * g + 0.114 * b) / 255;
      continue;
    }
    image.data[i] = r / 255;
    image.data[plane + i] = g / 255;
    image.data[2 * plane + i] = b / 255;
  }
  return image;
}

// A sample of the page: bytes (H, W) or (H, W, 3).
function sampleCanvas({ pixels }, [height, width], channels) {
  const bytes = new Uint8Array(bytesOf(pixels));
  return canvasOf(width, height, (pen) => {
    const image = pen.createImageData(width, height),
      [step, green, blue] = channels === 1 ? [1, 0, 0] : [3, 1, 2];
    for (let from = 0, to = 0; from < bytes.length; from += step, to += 4) {
      image.data[to] = bytes[from];
      image.data[to + 1] = bytes[from + green];
      image.data[to + 2] = bytes[from + blue];
      image.data[to + 3] = 255;
    }
    pen.putImageData(image, 0, 0);
  });
}

// A small color image, for models that take colors where the samples have none.
function landscape() {
  return canvasOf(32, 32, (pen) => {
    const shapes = [
      ["#8ecdf0", "M0 0H32V32H0Z"],
      ["#f5c33b", "M21 6h6v6h-6z"],
      ["#6fae5a", "M0 24Q10 15 20 22T32 20V32H0Z"],
      ["#d8d0c0", "M6 17h10v9H6z"],
      ["#b8452f", "M4 17L11 10L18 17Z"],
      ["#4a3b32", "M10 21h3v5h-3z"],
    ];
    for (const [color, path] of shapes) {
      pen.fillStyle = color;
      pen.fill(new Path2D(path));
    }
  });
}

// The size in which an image of one's own is shown: some 256 pixels, and whole ones in each patch.
const fineSize = () => DATA.config.image_size.map((side) => side * Math.max(1, Math.round(256 / side)));

// An image (or a frame of a video) as the model's preprocessing has it: cropped to the center, squashed or padded. Dark
// on light becomes light on dark where the model's images are.
function fittedCanvas(bitmap, [height, width], resize, dark) {
  const [wide, tall] = [bitmap.videoWidth ?? bitmap.width, bitmap.videoHeight ?? bitmap.height];
  return canvasOf(width, height, (pen) => {
    const grow =
      resize.kind === "fit"
        ? Math.min(width / wide, height / tall)
        : Math.max(width / wide, height / tall) / resize.fraction;
    const [w, h] =
      resize.kind === "squash"
        ? [width / resize.fraction, height / resize.fraction]
        : [wide * grow, tall * grow];
    const channels = Array.from({ length: 3 }, (_, c) => 255 * (resize.mean[c] ?? resize.mean[0]));
    pen.fillStyle = resize.kind === "fit" ? `rgb(${channels})` : "#fff";
    pen.fillRect(0, 0, width, height);
    pen.drawImage(bitmap, (width - w) / 2, (height - h) / 2, w, h);
    const image = pen.getImageData(0, 0, width, height),
      mean = image.data.reduce((sum, value, i) => sum + (i % 4 < 3 ? value : 0), 0) / (3 * width * height);
    if (dark && mean > 128) {
      image.data.forEach((value, i, data) => {
        if (i % 4 < 3) data[i] = 255 - value;
      });
      pen.putImageData(image, 0, 0);
    }
  });
}

// Drawing with a pointer, by touch, and with the arrow keys: Space sets the pen down and lifts it.
class Pad {
  constructor(canvas, changed) {
    Object.assign(this, { canvas, changed, last: null, cursor: [128, 128], down: false, drawn: false, strokes: [] });
    this.pen = canvas.getContext("2d", { willReadFrequently: true });
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.enabled) return;
      event.preventDefault();
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      this.begin(this.place(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.last) this.stroke(this.place(event));
    });
    for (const name of ["pointerup", "pointercancel"])
      canvas.addEventListener(name, () => {
        this.last = null;
      });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * 256, ((event.clientY - box.top) / box.height) * 256];
  }

  begin(at) {
    if (!this.drawn) this.clear();
    this.drawn = true;
    this.last = at;
    this.strokes.push([at]);
    this.stroke([at[0] + 0.1, at[1]]);
  }

  stroke(to) {
    const { pen } = this;
    Object.assign(pen, { strokeStyle: "#fff", lineWidth: 26, lineCap: "round", lineJoin: "round" });
    pen.beginPath();
    pen.moveTo(...this.last);
    pen.lineTo(...to);
    pen.stroke();
    this.last = to;
    this.strokes.at(-1).push(to);
    this.changed(this.reduced());
  }

  key(event) {
    const step = { ArrowUp: [0, -12], ArrowDown: [0, 12], ArrowLeft: [-12, 0], ArrowRight: [12, 0] }[
      event.key
    ];
    if (!this.enabled || !(step || event.key === " " || event.key === "Delete")) return;
    event.preventDefault();
    if (step) {
      this.cursor = this.cursor.map((value, i) => Math.max(12, Math.min(244, value + step[i])));
      if (this.down) this.stroke(this.cursor);
    } else if (event.key === " ") {
      this.down = !this.down;
      if (this.down) this.begin(this.cursor);
      else this.last = null;
    } else {
      this.clear();
    }
  }

  clear() {
    Object.assign(this, { drawn: false, down: false, last: null, strokes: [] });
    this.pen.fillStyle = "#000";
    this.pen.fillRect(0, 0, 256, 256);
  }

  // Show an image, which the next stroke replaces.
  show(canvas) {
    this.clear();
    this.pen.imageSmoothingEnabled = canvas.width > 64;
    const grow = 256 / Math.max(canvas.width, canvas.height),
      w = canvas.width * grow,
      h = canvas.height * grow;
    this.pen.drawImage(canvas, (256 - w) / 2, (256 - h) / 2, w, h);
  }

  // The strokes as the bundled digits have them: they fill the height, are at most three quarters as wide and in the
  // middle, and the pen is as thick in a small drawing as in a large one. Then blocks are averaged.
  reduced() {
    const [tall, wide] = this.size,
      [W, H] = [wide * FINE, tall * FINE],
      thick = THICK * H,
      points = this.strokes.flat(),
      [left, right, top, bottom] = [
        Math.min(...points.map(([x]) => x)),
        Math.max(...points.map(([x]) => x)),
        Math.min(...points.map(([, y]) => y)),
        Math.max(...points.map(([, y]) => y)),
      ];
    const high = (H - thick) / Math.max(bottom - top, 1),
      across = Math.min(high, (WIDEST * W - thick) / Math.max(right - left, 1)),
      down = Math.min(high, 2.5 * across);
    const place = ([x, y]) => [
      W / 2 + (x - (left + right) / 2) * across,
      H / 2 + (y - (top + bottom) / 2) * down,
    ];
    const fine = canvasOf(W, H, (pen) => {
      pen.fillRect(0, 0, W, H);
      Object.assign(pen, { strokeStyle: "#fff", lineWidth: thick, lineCap: "round", lineJoin: "round" });
      for (const stroke of this.strokes) {
        pen.beginPath();
        stroke.forEach((point, i) => (i ? pen.lineTo(...place(point)) : pen.moveTo(...place(point))));
        pen.stroke();
      }
    });
    const ink = fine.getContext("2d").getImageData(0, 0, W, H).data;
    return canvasOf(wide, tall, (pen) => {
      const out = pen.createImageData(wide, tall);
      for (let n = 0; n < wide * tall; n++) {
        let sum = 0;
        for (let i = 0; i < FINE * FINE; i++) {
          const y = Math.floor(n / wide) * FINE + Math.floor(i / FINE),
            x = (n % wide) * FINE + (i % FINE);
          sum += ink[4 * (y * W + x)] / (FINE * FINE);
        }
        out.data.set([sum, sum, sum, 255], 4 * n);
      }
      pen.putImageData(out, 0, 0);
    });
  }
}

// --- The camera: what it sees is what the model gets, several times a second, until it is stopped. --------------

const camera = { stream: null, timer: 0 };

async function startCamera() {
  try {
    camera.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: 640 } });
  } catch {
    byId("said").textContent = byId("stage-hint").textContent = words().camera_failed;
    return;
  }
  const video = element("video", { playsinline: true });
  video.muted = true;
  video.srcObject = camera.stream;
  await video.play();
  const look = () => {
    if (!camera.stream) return;
    const canvas = fittedCanvas(video, DATA.config.image_size, DATA.resize, false);
    canvas.fine = fittedCanvas(video, fineSize(), DATA.resize, false);
    useCanvas(canvas);
    camera.timer = setTimeout(look, 100);
  };
  look();
}

// The last frame stays.
function stopCamera() {
  for (const track of camera.stream?.getTracks() ?? []) track.stop();
  clearTimeout(camera.timer);
  camera.stream = null;
  update({});
}
