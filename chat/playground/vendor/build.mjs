// Bundles each library of package.json into one minified ES module in chat/static/chat/vendor. Run at vendoring time only:
//   npm ci && node build.mjs
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const PACKAGES = join(HERE, "node_modules");
const OUTPUT = join(HERE, "../../static/chat/vendor");

// The exports of each module. Its type declarations (`preact.d.ts` and so on, written by hand) say the same.
const MODULES = {
  preact: `
    export * from "preact";
    export * from "preact/hooks";
    export { Signal, signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "@preact/signals";
    export { html } from "htm/preact";`,
  marked: `export * from "marked";`,
  dompurify: `export { default } from "dompurify";`,
  highlight: `export { default } from "highlight.js/lib/common";`,
  katex: `export { default, ParseError } from "katex";`,
  codemirror: `
    export { basicSetup, minimalSetup } from "codemirror";
    export { autocompletion, acceptCompletion, closeBrackets, closeBracketsKeymap, completionKeymap, snippet, snippetCompletion,
      startCompletion } from "@codemirror/autocomplete";
    export { defaultKeymap, history, historyKeymap, indentLess, indentMore, indentWithTab, redo, undo } from "@codemirror/commands";
    export { json, jsonLanguage, jsonParseLinter } from "@codemirror/lang-json";
    export { bracketMatching, ensureSyntaxTree, foldGutter, foldKeymap, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting,
      syntaxTree } from "@codemirror/language";
    export { diagnosticCount, forceLinting, forEachDiagnostic, linter, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
    export { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
    export { Annotation, Compartment, EditorSelection, EditorState, Facet, Prec, StateEffect, StateField, Transaction } from "@codemirror/state";
    export { Decoration, drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, hoverTooltip,
      keymap, lineNumbers, placeholder, ViewPlugin, WidgetType } from "@codemirror/view";
    export { tags } from "@lezer/highlight";`,
  uplot: `export { default } from "uplot";`,
  diff: `export { createTwoFilesPatch, diffArrays, diffChars, diffJson, diffLines, diffWords, diffWordsWithSpace } from "diff";`,
};

const packageOf = (path) => path.match(/.*node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1];
const described = (name) => JSON.parse(readFileSync(join(PACKAGES, name, "package.json"), "utf8"));
const labelOf = (name) => `${name} ${described(name).version}`;

/** Returns the text of a module, with a first line that names what is in it, and the names of its packages. */
async function bundled(exports) {
  const { outputFiles, metafile } = await build({
    stdin: { contents: exports, resolveDir: HERE },
    absWorkingDir: HERE,
    bundle: true,
    charset: "utf8",
    format: "esm",
    legalComments: "none",
    metafile: true,
    minify: true,
    target: "es2022",
    tsconfigRaw: "{}", // that of the pages has paths into node_modules, past what packages export
    write: false,
  });
  const [output] = Object.values(metafile.outputs);
  const used = Object.entries(output.inputs).filter(([, { bytesInOutput }]) => bytesInOutput > 0);
  const names = [...new Set(used.map(([path]) => packageOf(path)))].filter(Boolean).sort();
  return { text: `/*! ${names.map(labelOf).join(", ")}. Licences: LICENSES.txt */\n${outputFiles[0].text}`, names };
}

/** Returns the style sheet of KaTeX, which names its fonts in the one format that all browsers read. */
function katexStyles() {
  const styles = readFileSync(join(PACKAGES, "katex/dist/katex.min.css"), "utf8");
  const woff2 = styles.replaceAll(/,url\([^)]+\.(?:woff|ttf)\) format\("(?:woff|truetype)"\)/g, "");
  return `/*! ${labelOf("katex")}. Licences: LICENSES.txt */\n${woff2.trimEnd()}\n`;
}

/** Returns the style sheet of uPlot. */
function uplotStyles() {
  return `/*! ${labelOf("uplot")}. Licences: LICENSES.txt */\n${readFileSync(join(PACKAGES, "uplot/dist/uPlot.min.css"), "utf8").trim()}\n`;
}

function licences(names) {
  const sections = names.map((name) => {
    const files = readdirSync(join(PACKAGES, name)).filter((file) => /^(licen[cs]e|notice)/i.test(file)).sort();
    if (!files.length) throw new Error(`${name} has no licence file`);
    const texts = files.map((file) => readFileSync(join(PACKAGES, name, file), "utf8").trim());
    return [`${labelOf(name)} (${described(name).license.replaceAll(/[()]/g, "")})`, ...texts].join("\n\n");
  });
  return `The modules of this folder contain these packages.\n\n${sections.join(`\n\n${"-".repeat(80)}\n\n`)}\n`;
}

const outputs = new Map();
const packages = new Set();
for (const [module, exports] of Object.entries(MODULES)) {
  const { text, names } = await bundled(exports);
  outputs.set(`${module}.js`, text);
  for (const name of names) packages.add(name);
}
outputs.set("katex.css", katexStyles());
outputs.set("uplot.css", uplotStyles());
for (const font of readdirSync(join(PACKAGES, "katex/dist/fonts")).filter((name) => name.endsWith(".woff2"))) {
  outputs.set(`fonts/${font}`, readFileSync(join(PACKAGES, "katex/dist/fonts", font)));
}
outputs.set("LICENSES.txt", licences([...packages].sort()));

rmSync(join(OUTPUT, "fonts"), { recursive: true, force: true });
mkdirSync(join(OUTPUT, "fonts"), { recursive: true });
const hashes = {};
for (const [name, content] of [...outputs].sort(([a], [b]) => (a < b ? -1 : 1))) {
  writeFileSync(join(OUTPUT, name), content);
  hashes[name] = createHash("sha256").update(content).digest("hex");
}
writeFileSync(join(OUTPUT, "HASHES.json"), `${JSON.stringify(hashes, null, 2)}\n`);
