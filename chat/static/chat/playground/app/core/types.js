// @ts-check
/**
 * The shapes of the page's data, as the server's routes have them (docs/conversations.md).
 *
 * @typedef {"system" | "developer" | "user" | "assistant" | "tool"} Role
 * @typedef {"begun" | "ended" | "failed"} TurnState
 *
 * @typedef {{id: string | null, name: string, arguments: string}} Call a function call of an answer
 * @typedef {{token: string, id: number, logprob: number, bytes: number[] | null, rank: number | null}} TokenFact
 * @typedef {TokenFact & {top: TokenFact[]}} TokenLogprob a token with the likeliest ones at its place
 *
 * @typedef {object} Choice
 * @property {string} content
 * @property {string} reasoning
 * @property {Call[]} calls
 * @property {string | null} [finish_reason]
 * @property {number} [tokens]
 * @property {string | number | null} [stop] the stop string, or the id of the stop token, that ended it
 * @property {[number, number]} [reasoning_at] when its reasoning was seen to begin and to grow last, in ms since 1970
 * @property {TokenLogprob[]} [logprobs]
 * @property {number} [num_unkept_logprobs] how many there were, if they were too large to be kept
 *
 * @typedef {{choices: Choice[], shown: number, prompt_logprobs?: (TokenLogprob | null)[]}} AnswerContent
 * @typedef {"image_url" | "input_audio" | "file"} MediaKind the types of content parts that are no text
 * @typedef {{num_bytes: number, width?: number, height?: number, was?: [number, number], seconds?: number}} About
 *   `was`: width and height before the page made the image smaller
 * @typedef {{kind: MediaKind, url: string, format?: string} & About} Media an image, a sound or a document; `format`: of a sound
 * @typedef {{type: string, text?: string, image_url?: {url: string}, input_audio?: {data: string, format?: string},
 *   file?: {file_data: string, filename?: string}, attachment?: string, about?: About}} Part a content part of OpenAI's API;
 *   `attachment`: the name of the file that it is, `about`: what is shown of it. Both are kept and not sent
 * @typedef {string | Part[] | AnswerContent} Content
 *
 * @typedef {{prompt_tokens: number, cached_tokens: number, completion_tokens: number, reasoning_tokens: number,
 *   accepted_prediction_tokens?: number, rejected_prediction_tokens?: number}} Usage
 *
 * @typedef {object} Timings
 * @property {number | null} first_token_s
 * @property {number | null} total_s
 * @property {number | null} tokens_per_s
 * @property {number | null} [queue_s]
 * @property {number | null} [prompt_s]
 * @property {number} [loading_s] the part of `queue_s` for which the page saw the model load
 * @property {number} [attempts] how often it was begun
 * @property {string} [log_url] its page in the console, for those who may see it
 *
 * @typedef {{message: string, code: string | null, param: string | null, request_id?: string}} Problem
 * @typedef {{amount: string, currency: string}} Cost
 * @typedef {Record<string, any>} Parameters fields of a request, without `model` and `messages`
 *
 * @typedef {{system: string, fields: Parameters, prefix?: string}} Asked how an answer was asked for; `prefix`: the text that it goes on from
 *
 * @typedef {object} TurnFacts what the server keeps of a turn
 * @property {string} id
 * @property {string} parent the turn before it, "" for a first one
 * @property {Role} role
 * @property {TurnState} state
 * @property {Content} [content]
 * @property {string} [run] the run whose answer it is
 * @property {string} [model]
 * @property {Asked} [parameters]
 * @property {Usage} [usage]
 * @property {Timings} [timings]
 * @property {string} [outcome]
 * @property {Problem} [error]
 * @property {string} [time] when it was made, ISO
 * @property {string} [tool_call_id]
 * @property {number} [choice] which choice of its parent it follows
 * @property {Cost | null} [cost]
 * @property {string} [request_id]
 * @property {number | null} [seed]
 * @property {number} [created_at] seconds
 *
 * @typedef {{model: string, system: string, parameters: Parameters, tools_off?: {at: number, tool: any}[]}} ChatSettings
 *   `tools_off`: tools that are not offered now, with their places among all
 * @typedef {{text: string, files?: DraftFile[], results?: Record<string, string>, queue?: Queued[], shown?: Record<string, number>,
 *   edit?: {turn: string, text: string, files?: DraftFile[]}, at?: number}} Draft
 *   `results`: unsent tool results by the id of their call; `queue`: messages that wait for the end of the running answer;
 *   `shown`: the choice that is shown of an answer that nothing follows; `edit`: what was written in the open form of a turn
 * @typedef {{id: string, text: string, files?: DraftFile[]}} Queued
 * @typedef {{name: string, text: string, media?: Media}} DraftFile a file that goes with the message; of one that is no text `media`
 *
 * @typedef {object} ChatFacts a conversation as the server lists it
 * @property {string} id
 * @property {string} title
 * @property {string} folder
 * @property {string[]} tags
 * @property {Partial<ChatSettings>} settings
 * @property {string} head
 * @property {number} version
 * @property {number} num_turns
 * @property {number} num_bytes
 * @property {number | null} pinned_at
 * @property {number | null} archived_at
 * @property {number | null} deleted_at
 * @property {number} created_at
 * @property {number} updated_at
 *
 * @typedef {{prompt: string, cached: string, completion: string, currency: string, per_tokens: number}} Price
 * @typedef {object} ModelFacts
 * @property {string} id
 * @property {boolean} is_default
 * @property {string} state
 * @property {string} [phase]
 * @property {number} [fraction]
 * @property {string} [reason]
 * @property {number | null} context
 * @property {string[]} [modalities]
 * @property {string[]} [capabilities]
 * @property {Price | null} price
 * @property {Parameters} defaults
 * @property {string | null} [system_prompt]
 * @property {string | null} [deprecated_at]
 * @property {string[]} [aliases]
 *
 * @typedef {object} Measure what a message would take of the context of its model, in tokens
 * @property {number} prompt
 * @property {number} reserve the most of the answer, 0 for what is left
 * @property {number} context
 * @property {boolean} [isEstimate]
 *
 * @typedef {Record<string, any> & {type: string, id: string}} Message of the socket, either way
 */
export {};
