// @ts-check
// Makes of the images that people choose what models take: in a format that the server reads, and no larger than is of use to them.

/** @typedef {{maxSide: number, maxBytes: number}} PictureLimits */
/** @typedef {{blob: Blob, width: number, height: number, was?: [number, number]}} Picture `was`: its size before it was made smaller */

const TAKEN = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);
const QUALITIES = [0.9, 0.8, 0.65];
const SMALLER = 0.7;
const MAX_TRIES = 6;

/** An image as it is sent, null if the browser cannot read it. @param {File} file @param {PictureLimits} limits @returns {Promise<Picture | null>} */
export async function prepare(file, { maxSide, maxBytes }) {
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return null;
  try {
    const { width, height } = bitmap;
    const scale = Math.min(1, maxSide / Math.max(width, height));
    const isFit = scale === 1 && file.size <= maxBytes && TAKEN.has(file.type);
    if (isFit && !(await tells(file))) return { blob: file, width, height };
    return await written(bitmap, scale, maxBytes);
  } finally {
    bitmap.close();
  }
}

/** Whether a file says where and with what it was taken: that is never sent. The bitmap is turned as it says. @param {File} file */
async function tells(file) {
  const text = new TextDecoder("latin1").decode(await file.arrayBuffer());
  return text.includes("Exif\0\0") || text.includes("eXIf") || text.includes("EXIF");
}

/** @param {ImageBitmap} bitmap @param {number} scale @param {number} maxBytes @returns {Promise<Picture | null>} */
async function written(bitmap, scale, maxBytes) {
  for (let tries = 0; tries < MAX_TRIES; tries += 1, scale *= SMALLER) {
    const [width, height] = [Math.max(1, Math.round(bitmap.width * scale)), Math.max(1, Math.round(bitmap.height * scale))];
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    if (!context) return null;
    context.imageSmoothingQuality = "high";
    context.drawImage(bitmap, 0, 0, width, height);
    const type = isOpaque(context.getImageData(0, 0, width, height).data) ? "image/jpeg" : "image/webp";
    for (const quality of QUALITIES) {
      const blob = /** @type {Blob | null} */ (await new Promise((done) => canvas.toBlob(done, type, quality)));
      if (!blob) return null;
      const was = /** @type {[number, number]} */ ([bitmap.width, bitmap.height]);
      if (blob.size <= maxBytes) return { blob, width, height, ...(scale < 1 ? { was } : {}) };
    }
  }
  return null;
}

/** Whether nothing can be seen through, in bytes of red, green, blue and alpha. @param {Uint8ClampedArray} pixels */
function isOpaque(pixels) {
  for (let at = 3; at < pixels.length; at += 4) if (pixels[at] < 255) return false;
  return true;
}
