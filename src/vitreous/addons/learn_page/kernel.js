// --- Matrix products several numbers at a time, in WebAssembly: kernel.wat, compiled with wabt. -------------------
// Its code is fast from the first image on, where a browser would run loops in JavaScript some hundred times before it
// compiles them. Its arrays are in a memory of its own. Where a browser lacks SIMD, loops in JavaScript compute the same.
const KERNEL =
  "AGFzbQEAAAABMARgCH9/f39/f39/AGAJf39/f39/f3x8AGANf39/f39/f39/f39/fwBgBX9/f39/AAMFBAABAgMFAwEAAQc1BQZtZW1vcnkCAAphY2N1bX" +
  "VsYXRlAAAHcHJvZHVjdAABCWRlcHRod2lzZQACBXNjYWxlAAMK6w4EgQICBn8Fe0EAIQgDQEEAIQkDQCAEIAlqIQ0gACELIAMgCWohDCAN/QAEACEPIA39" +
  "AAQQIRAgDf0ABCAhESAN/QAEMCESIAYhCgNAIAv9CQIAIQ4gDyAOIAz9AAQA/eYB/eQBIQ8gECAOIAz9AAQQ/eYB/eQBIRAgESAOIAz9AAQg/eYB/eQBIR" +
  "EgEiAOIAz9AAQw/eYB/eQBIRIgCyABaiELIAwgB2ohDCAKQQFrIQogCg0ACyANIA/9CwQAIA0gEP0LBBAgDSAR/QsEICANIBL9CwQwIAlBwABqIQkgCSAH" +
  "SQ0ACyAAIAJqIQAgBCAHaiEEIAhBAWohCCAIIAVJDQALC60IAgt/DXsgB/0UIRcgCP0UIRgDQEEAIQkDQCAJQQFqIAkgCUEBaiABSRshCiAAIAkgAkEDdG" +
  "xqIQ0gACAKIAJBA3RsaiEOIAMgCyACQQJ0bGohDyAPIAJBAnRqIRAgECACQQJ0aiERIBEgAkECdGohEv0MAAAAAAAAAAAAAAAAAAAAACEZ/QwAAAAAAAAA" +
  "AAAAAAAAAAAAIRr9DAAAAAAAAAAAAAAAAAAAAAAhG/0MAAAAAAAAAAAAAAAAAAAAACEc/QwAAAAAAAAAAAAAAAAAAAAAIR39DAAAAAAAAAAAAAAAAAAAAA" +
  "AhHv0MAAAAAAAAAAAAAAAAAAAAACEf/QwAAAAAAAAAAAAAAAAAAAAAISAgAkEBdiEMIAwEQANAIA39AAQAIRQgDv0ABAAhFSAP/V0DAP1fIRYgGSAUIBb9" +
  "8gH98AEhGSAdIBUgFv3yAf3wASEdIBD9XQMA/V8hFiAaIBQgFv3yAf3wASEaIB4gFSAW/fIB/fABIR4gEf1dAwD9XyEWIBsgFCAW/fIB/fABIRsgHyAVIB" +
  "b98gH98AEhHyAS/V0DAP1fIRYgHCAUIBb98gH98AEhHCAgIBUgFv3yAf3wASEgIA1BEGohDSAOQRBqIQ4gD0EIaiEPIBBBCGohECARQQhqIREgEkEIaiES" +
  "IAxBAWshDCAMDQALCyACQQFxBEAgDf1dAwAhFCAO/V0DACEVIA/9XAIA/V8hFiAZIBQgFv3yAf3wASEZIB0gFSAW/fIB/fABIR0gEP1cAgD9XyEWIBogFC" +
  "AW/fIB/fABIRogHiAVIBb98gH98AEhHiAR/VwCAP1fIRYgGyAUIBb98gH98AEhGyAfIBUgFv3yAf3wASEfIBL9XAIA/V8hFiAcIBQgFv3yAf3wASEcICAg" +
  "FSAW/fIB/fABISALIAQgC0ECdGr9XQMA/V8hFiAEIAtBAnRq/V0DCP1fIRQgBiAJIAVsIAtqQQN0aiETIBMgGCAXIBYgGSAa/Q0AAQIDBAUGBxAREhMUFR" +
  "YXIBkgGv0NCAkKCwwNDg8YGRobHB0eH/3wAf3wAf31Af30Af0LBAAgEyAYIBcgFCAbIBz9DQABAgMEBQYHEBESExQVFhcgGyAc/Q0ICQoLDA0ODxgZGhsc" +
  "HR4f/fAB/fAB/fUB/fQB/QsEECAGIAogBWwgC2pBA3RqIRMgEyAYIBcgFiAdIB79DQABAgMEBQYHEBESExQVFhcgHSAe/Q0ICQoLDA0ODxgZGhscHR4f/f" +
  "AB/fAB/fUB/fQB/QsEACATIBggFyAUIB8gIP0NAAECAwQFBgcQERITFBUWFyAfICD9DQgJCgsMDQ4PGBkaGxwdHh/98AH98AH99QH99AH9CwQQIAlBAmoh" +
  "CSAJIAFJDQALIAtBBGohDCAMIAVBBGsgDEEEaiAFTRshCyAMIAVJDQALC6gDAgx/AnsDQCANIAdsIAhrIRIgASASayEWIAYgFiAGIBZIGyEWQQAhDgNAIA" +
  "4gB2wgCWshE0EAIBNrIRQgFEEAIBRBAEobIRQgAiATayEVIAYgFSAGIBVIGyEVQQAhDwNAIAUgD0ECdGr9XQMA/V8hGSAFIA9BAnRq/V0DCP1fIRpBACAS" +
  "a0EAIBJBAEgbIRADQCAUIREgACAPIAMgEiAQaiACbCATIBFqamxqQQN0aiEXIAQgDyADIBAgBmwgEWpsakECdGohGANAIBkgF/0ABAAgGP1dAwD9X/3yAf" +
  "3wASEZIBogF/0ABBAgGP1dAwj9X/3yAf3wASEaIBcgA0EDdGohFyAYIANBAnRqIRggEUEBaiERIBEgFUgNAAsgEEEBaiEQIBAgFkgNAAsgDEQAAAAAAAAY" +
  "QP0URAAAAAAAAAAA/RQgGf31Af30Af0LBAAgDEQAAAAAAAAYQP0URAAAAAAAAAAA/RQgGv31Af30Af0LBBAgDEEgaiEMIA9BBGohDyAPIANIDQALIA5BAW" +
  "ohDiAOIAtIDQALIA1BAWohDSANIApIDQALC4wBAgF/AXsDQCAD/QkCACEGIAIhBQNAIAVBBE8EQCAEIAYgAP1cAgD9hwH9pwH9+gH95gH9CwQAIARBEGoh" +
  "BCAAQQRqIQAgBUEEayEFBSAEIAb9HwAgACwAALKUOAIAIARBBGohBCAAQQFqIQAgBUEBayEFCyAFDQALIANBBGohAyABQQFrIQEgAQ0ACws=";
const TILE = 48; // cells that are read and written together, so that they stay in the processor's cache

class Kernel {
  // One with room for `bytes`; null where the browser cannot run it.
  static make(bytes) {
    try {
      Kernel.module ??= new WebAssembly.Module(Uint8Array.from(atob(KERNEL), (letter) => letter.charCodeAt(0)));
      const code = new WebAssembly.Instance(Kernel.module).exports;
      code.memory.grow(Math.ceil(bytes / 65536));
      return Object.assign(new Kernel(), { code, buffer: code.memory.buffer, used: 16 });
    } catch {
      return null;
    }
  }

  list(size, Numbers = Float32Array) {
    const made = new Numbers(this.buffer, this.used, size);
    this.used += 16 * Math.ceil((size * Numbers.BYTES_PER_ELEMENT) / 16);
    return made;
  }

  // A tensor in the memory.
  hold({ data, shape }) {
    const copy = this.list(data.length);
    copy.set(data);
    return { data: copy, shape };
  }

  // Whether it can add to rows of `wide` numbers.
  fits(wide, ...arrays) {
    return wide % 16 === 0 && arrays.every((each) => each.buffer === this.buffer);
  }

  // C[m] += the sum over k of A[k ak + m am] B[k], where B and C have rows of `wide` numbers.
  add(a, ak, am, b, c, rows, sums, wide) {
    this.code.accumulate(a.byteOffset, 4 * ak, 4 * am, b.byteOffset, c.byteOffset, rows, sums, 4 * wide);
  }

  // y = x W^T + b of `count` rows, between two bounds; x and y are in double precision.
  product(x, count, { weight, bias, inputs, outputs }, y, least = -Infinity, most = Infinity) {
    for (let first = 0; first < count; first += TILE)
      this.code.product(
        x.byteOffset + 8 * first * inputs,
        Math.min(TILE, count - first),
        inputs,
        weight.byteOffset,
        bias.byteOffset,
        outputs,
        y.byteOffset + 8 * first * outputs,
        least,
        most,
      );
  }

  // x W^T + b as a tensor, of which x is first multiplied by `scale`; null where the memory has no room for all of them.
  linear({ data, shape: [rows, inputs] }, weight, bias, scale = 1) {
    const outputs = weight.shape[0],
      before = this.used,
      bytes = 8 * rows * (inputs + outputs) + 4 * outputs * (inputs + 1);
    if (outputs < 4 || before + bytes + 64 > this.buffer.byteLength) return null;
    const x = this.list(data.length, Float64Array),
      sums = this.list(rows * outputs, Float64Array),
      inMemory = (each) => (each.buffer === this.buffer ? each : this.hold({ data: each }).data),
      layer = { inputs, outputs, weight: inMemory(weight.data), bias: inMemory(bias?.data ?? new Float32Array(outputs)) },
      y = new Float32Array(rows * outputs);
    x.set(data);
    if (scale !== 1) for (let i = 0; i < x.length; i++) x[i] *= scale;
    this.product(x, rows, layer, sums);
    y.set(sums);
    this.used = before;
    return { data: y, shape: [rows, outputs] };
  }

  // A convolution of each channel by itself, with ReLU6, of tall x wide cells; x and y are in double precision.
  depthwise(x, [tall, wide], { weight, bias, kernel, stride, outputs }, y) {
    this.code.depthwise(
      x.byteOffset,
      tall,
      wide,
      outputs,
      weight.byteOffset,
      bias.byteOffset,
      kernel,
      stride,
      paddingOf(tall, kernel, stride),
      paddingOf(wide, kernel, stride),
      Math.ceil(tall / stride),
      Math.ceil(wide / stride),
      y.byteOffset,
    );
  }

  // Levels in 8 bits times the steps of their rows. compact: [name, rows, ...sides] of each tensor.
  scaled(compact, levels, steps) {
    const numbers = this.list(levels.length),
      before = this.used,
      from = this.list(levels.length, Int8Array),
      by = this.list(steps.length);
    from.set(levels);
    by.set(steps);
    let at = 0,
      row = 0;
    for (const [, rows, ...sides] of compact) {
      const wide = numbersOf(sides);
      this.code.scale(from.byteOffset + at, rows, wide, by.byteOffset + 4 * row, numbers.byteOffset + 4 * at);
      at += rows * wide;
      row += rows;
    }
    this.used = before;
    return numbers;
  }
}
