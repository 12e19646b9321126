// @ts-check
// Records sound for a message: what the microphone hears becomes a WAV file of one channel at 16 kHz, which every model that hears takes.
import { html, useEffect, useRef, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { IconButton } from "./controls.js";
import { StopIcon } from "./icons.js";

const RATE = 16_000;
const BYTES_PER_SAMPLE = 2;
const HEAD_BYTES = 44;
/** What a file may have takes no more. */
const MAX_S = 300;

/**
 * A button that records until it is pressed again.
 * @param {{isOff: boolean, onDone: (file: File) => void, onProblem: (text: string) => void}} props
 */
export function RecordButton({ isOff, onDone, onProblem }) {
  const recorder = useRef(/** @type {MediaRecorder | null} */ (null));
  /** Whether the browser asks for the microphone, and whether the button is gone meanwhile. */
  const asking = useRef({ isOpen: false, isLeft: false });
  const [since, setSince] = useState(0);
  const [seconds, setSeconds] = useState(0);
  const stop = () => recorder.current?.state === "recording" && recorder.current.stop();
  useEffect(() => {
    if (!since) return undefined;
    const timer = setInterval(() => {
      const passed = Math.floor((performance.now() - since) / 1000);
      setSeconds(passed);
      if (passed >= MAX_S) stop();
    }, 250);
    return () => clearInterval(timer);
  }, [since]);
  const leave = () => {
    asking.current.isLeft = true;
    stop();
  };
  useEffect(() => leave, []);

  const record = async () => {
    if (!navigator.mediaDevices) return onProblem(t("Browsers let a page record over HTTPS or at localhost alone."));
    if (asking.current.isOpen) return;
    asking.current.isOpen = true;
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      if (asking.current.isLeft) return endTracks(stream);
      const pieces = /** @type {Blob[]} */ ([]);
      const made = new MediaRecorder(stream);
      recorder.current = made;
      made.addEventListener("dataavailable", ({ data }) => pieces.push(data));
      made.addEventListener("stop", async () => {
        endTracks(stream);
        setSince(0);
        setSeconds(0);
        const wav = await wavOf(new Blob(pieces)).catch(() => null);
        if (wav) onDone(new File([wav], t("Recording {time}.wav", { time: timeNow() }), { type: "audio/wav" }));
        else onProblem(t("Nothing was recorded; try again."));
      });
      made.start();
      setSince(performance.now());
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      onProblem(error.name === "NotAllowedError" ? t("The browser does not let this page use the microphone; allow it in its settings.") : t("No microphone was found."));
    } finally {
      asking.current.isOpen = false;
    }
  };
  if (!since) return html`<${IconButton} icon="microphone" label=${t("Record sound")} disabled=${isOff} onClick=${record} />`;
  const passed = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  return html`<button type="button" class="button button-quiet recording" aria-label=${t("Stop recording")} title=${t("Stop recording")} onClick=${stop}><${StopIcon} /><span aria-hidden="true">${passed}</span></button>`;
}

/** Let the microphone go. @param {MediaStream} stream */
function endTracks(stream) {
  for (const track of stream.getTracks()) track.stop();
}

/** The time of the day, as a part of a file's name. */
const timeNow = () => new Date().toTimeString().slice(0, 8).replaceAll(":", "-");

/** A recording as WAV, whatever the browser records in. @param {Blob} recorded */
async function wavOf(recorded) {
  // What is decoded in a context has its rate.
  const sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await recorded.arrayBuffer());
  const bytes = new DataView(new ArrayBuffer(HEAD_BYTES + sound.length * BYTES_PER_SAMPLE));
  writeHead(bytes, sound.length);
  const channels = Array.from({ length: sound.numberOfChannels }, (_, at) => sound.getChannelData(at));
  for (let at = 0; at < sound.length; at += 1) {
    const mean = channels.reduce((sum, channel) => sum + channel[at], 0) / channels.length;
    bytes.setInt16(HEAD_BYTES + at * BYTES_PER_SAMPLE, Math.max(-1, Math.min(1, mean)) * 0x7fff, true);
  }
  return new Blob([bytes.buffer]);
}

/** The head of a WAV file of 16-bit samples (RIFF, "Multimedia Programming Interface and Data Specifications 1.0"). @param {DataView} bytes @param {number} numSamples */
function writeHead(bytes, numSamples) {
  const size = numSamples * BYTES_PER_SAMPLE;
  const words = /** @type {const} */ ([[0, "RIFF"], [8, "WAVEfmt "], [36, "data"]]);
  for (const [at, word] of words) [...word].forEach((letter, number) => bytes.setUint8(at + number, letter.charCodeAt(0)));
  const numbers = /** @type {const} */ ([[4, HEAD_BYTES - 8 + size], [16, 16], [24, RATE], [28, RATE * BYTES_PER_SAMPLE], [40, size]]);
  for (const [at, number] of numbers) bytes.setUint32(at, number, true);
  const shorts = /** @type {const} */ ([[20, 1], [22, 1], [32, BYTES_PER_SAMPLE], [34, 8 * BYTES_PER_SAMPLE]]); // PCM, one channel
  for (const [at, number] of shorts) bytes.setUint16(at, number, true);
}
