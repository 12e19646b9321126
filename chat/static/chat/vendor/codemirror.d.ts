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
export { tags } from "@lezer/highlight";
export type { Completion, CompletionContext, CompletionResult, CompletionSource } from "@codemirror/autocomplete";
export type { Diagnostic, LintSource } from "@codemirror/lint";
export type { Extension, Text, TransactionSpec } from "@codemirror/state";
export type { Command, DecorationSet, KeyBinding, Tooltip, ViewUpdate } from "@codemirror/view";
