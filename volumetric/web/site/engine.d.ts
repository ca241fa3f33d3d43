// Types of engine.js.

export type NumberArray = Int8Array | Uint8Array | Uint8ClampedArray | Int16Array | Uint16Array | Int32Array | Uint32Array | BigInt64Array | BigUint64Array | Float32Array | Float64Array;
/** All numbers in one array, or an array of rows, each flat or nested like the port. */
export type Values = NumberArray | number[] | Values[];
/** Rows for each input by its name; an array alone is that of the only input. */
export type Inputs = Values | Record<string, Values>;
/** Rows of each output by its name, in C order. */
export type Outputs = Record<string, Float32Array | Int32Array>;

export interface Progress {
  /** "header" is that of a GGUF file, of which loaded and total are bytes. */
  stage: "start" | "header" | "weights" | "kernels" | "ready";
  /** Bytes of the weights that are here. */
  loaded: number;
  total: number;
  /** Whether the latest bytes are those of an earlier visit. */
  cached?: boolean;
}

export interface LoadOptions {
  /** What it throws is reported as an error of the page, and ends nothing. */
  onProgress?: (progress: Progress) => void;
  signal?: AbortSignal;
  /** Addresses of folders of templates for a GGUF file, "./" unless stated; the first that fits is taken. */
  template?: string | URL | (string | URL)[];
  /** Run in a worker (the default), so that the page stays alive; where none can start, a warning says that there is none. */
  worker?: boolean;
  /** Addresses of the modules that the engine loads when it needs them, as worker.js, where they do not lie beside engine.js. */
  addresses?: Record<string, string>;
  /** Name and text of all modules, each after those that it imports: for a worker in a page that is one file. */
  modules?: [string, string][];
  /** Features of the adapter to do without, to try another variant; `fallback-adapter` hides that it runs on the CPU. */
  hide?: string[];
}

/** A network that the page holds itself. */
export interface Source {
  /** network.json, parsed or as text. */
  json(): unknown | Promise<unknown>;
  /** A piece: its bytes, or base64. */
  piece(index: number): ArrayBuffer | Uint8Array | string | Promise<ArrayBuffer | Uint8Array | string>;
  /** Another JSON file, as tokenizer.json. */
  file?(name: string): unknown | Promise<unknown>;
}

export interface Port {
  buffer: string;
  dtype: "float32" | "int32";
  shape: number[];
  stride: number;
  /** Of the columns of an input, or of the classes of an output. */
  names?: string[];
  standardise?: { mean: number[]; deviation: number[] };
}

export interface Info {
  kind: "rows" | "sequences" | "stream" | "ticks" | "language" | "encoder" | "population" | "learner";
  title: string;
  origin: { name?: string | null; source?: string | null; licence?: string | null; author?: string | null; engine?: string | null };
  inputs: Record<string, Port>;
  outputs: Record<string, Port>;
  ui: Record<string, unknown>;
  device: { vendor: string; architecture: string; description: string; software: boolean; subgroups: [number, number]; features: string[] };
  variant: string;
  weightBytes: number;
  deviceBytes: number;
  /** Whether `stream()` works. */
  streams: boolean;
  language: { vocabulary: number; context: number; defaults: Record<string, number>; chats: boolean; text: boolean } | null;
  encoder: { tokens: number; prompts: string[]; classes: string[] | null } | null;
  /** Which inputs may get rows at a tick, for clocked networks. */
  ticks: { programs: { fed: string[]; program: string }[] } | null;
  population: Record<string, unknown> | null;
  learner?: Record<string, unknown>;
}

export interface Weight {
  dtype: "float32";
  shape: number[];
  data: Float32Array;
}

/** Learns by the updates of Python's learner; updates are made one after the other. */
export interface Learner {
  /** How many samples an update may have. */
  readonly batches: number[];
  /** Updates since the first weights. */
  readonly updates: number;
  /** Learning rate of updates that name none. */
  rate: number;
  /** Make one update, and return the loss before it. Targets are classes (whole numbers) or numbers, by output if there are several. */
  update(inputs: Inputs, targets: Inputs, options?: { rate?: number }): Promise<number>;
  /** Return to the first weights. */
  reset(): Promise<void>;
  weights(): Promise<Record<string, Weight>>;
  /** The weights as a file that `volumetric.detect.load_state` reads. */
  safetensors(): Promise<Uint8Array>;
}

export interface NodeGene {
  id: number;
  activation: number;
  aggregation: number;
  bias: number;
}

export interface ConnectionGene {
  innovation: number;
  source: number;
  target: number;
  weight: number;
  enabled: boolean;
}

export interface Genome {
  nodes: NodeGene[];
  connections: ConnectionGene[];
}

export interface Generation {
  generation: number;
  best: number;
  mean: number;
  /** Mean number of nodes of a genome. */
  nodes: number;
  species: { id: number; size: number }[];
  champion: { genome: Genome; fitness: number; generation: number };
  solved: boolean;
}

/** What genomes are to do. */
export interface Problem {
  name: string;
  inputs: number;
  outputs: number;
  /** Fitness that solves it. */
  goal: number;
  activation?: string;
  /** Return the fitness of each genome; they are on the GPU. */
  evaluate(gpu: {
    /** Outputs [genomes, outputs, samples]; `goesOn`: recurrent genomes begin where the last activation has left them, else at zero. */
    activate(x: Float32Array, samples: number, shared: boolean, goesOn?: boolean): Promise<Float32Array>;
  }, genomes: Genome[], generation: number, seed: number): Promise<number[]>;
}

export interface PopulationOptions {
  problem?: "xor" | "cartpole" | Problem;
  seed?: number;
  /** Like `EvolutionConfig.to_dict()` in Python; missing values are those of the export. */
  config?: Record<string, unknown>;
  genomes?: Genome[] | null;
}

/** A population of NEAT. */
export interface Population {
  readonly genomes: Genome[];
  readonly interface: { inputs: number; outputs: number; recurrent: boolean; steps: number };
  readonly generation: number;
  readonly solved: boolean;
  /** Breed if the present generation has been evaluated, and evaluate the new one. */
  step(): Promise<Generation>;
  /** The champion, as `volumetric.evolution.Genome.load` reads it. */
  championJson(): string;
}

export interface Message {
  role: string;
  /** A text, or what the model's template takes; a message with `tool_calls` may have none. */
  content?: string | null | Record<string, unknown>[];
  [name: string]: unknown;
}

export interface GenerateOptions {
  signal?: AbortSignal;
  /** At most so many tokens. */
  maxTokens?: number;
  /** 0 (greedy) unless the model says otherwise. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  /** The same seed draws the same tokens as in Python. */
  seed?: number | bigint;
  /** End before any of these texts. */
  stop?: string | string[];
  /** Further variables of the chat template. */
  template?: Record<string, unknown>;
}

export interface Token {
  index: number;
  id: number;
  /** Text that is new with this token: may be empty, or belong to several. */
  text: string;
  finishReason: "stop" | "length" | null;
  /** Of the whole answer, with its last token. */
  stats: { promptTokens: number; cachedTokens: number; tokens: number; seed: number | bigint | null; firstTokenSeconds: number; seconds: number } | null;
  toString(): string;
}

export interface Stream {
  /** Pass a row, or several, and return the outputs. */
  step(inputs?: Inputs): Promise<Outputs>;
  /** Forget what the stream has seen. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

export interface Model {
  readonly info: Info;
  /** Resolves with the error when the GPU is lost; stays open otherwise. Load the network again then. */
  readonly lost: Promise<DeviceLostError>;
  /** Return the outputs of rows. */
  run(inputs: Inputs): Promise<Outputs>;
  /** Return a new stream; several of one network do not disturb each other. */
  stream(): Stream;
  /** Answer a conversation. Leaving the loop, or the signal, ends it. */
  chat(messages: Message[], options?: GenerateOptions): AsyncGenerator<Token, void, void>;
  /** Continue a text, or token ids. */
  generate(prompt: string | number[] | bigint[] | Int32Array | Message[], options?: GenerateOptions): AsyncGenerator<Token, void, void>;
  /** Return the logits behind a prompt. */
  logits(prompt: string | number[] | bigint[] | Int32Array | Message[]): Promise<Float32Array>;
  encode(prompt: string | Message[], template?: Record<string, unknown>): Promise<number[]>;
  decode(ids: number[] | bigint[] | Int32Array): Promise<string>;
  /** Return the vector of a text, or of each of several. */
  embed(text: string, options?: { prompt?: string | null }): Promise<Float32Array>;
  embed(texts: string[], options?: { prompt?: string | null }): Promise<Float32Array[]>;
  /** Return the scores of a text's classes (before softmax), or of each of several. */
  classify(text: string): Promise<Float32Array>;
  classify(texts: string[]): Promise<Float32Array[]>;
  /** Return the learner of a network that was exported with --learn. */
  learner(): Promise<Learner>;
  /** Return a population that evolves on the GPU. */
  population(options?: PopulationOptions): Promise<Population>;
  /** Write numbers to a buffer of the network, from a byte on. */
  write(buffer: string, values: ArrayBufferView, offset?: number): Promise<void>;
  /** Run programs of the network, in order. */
  submit(...programs: string[]): Promise<void>;
  /** Return bytes of a buffer. */
  read(buffer: string, range?: { offset?: number; bytes?: number }): Promise<ArrayBuffer>;
  /** Free the GPU's memory and end the worker. */
  close(): Promise<void>;
}

/**
 * Load a network: from the address of its folder or network.json, or from what the page holds itself; or a language model from
 * a GGUF file, by its address or a file that the visitor opened, with a template.
 */
export function load(source: string | URL | Blob | Source, options?: LoadOptions): Promise<Model>;

/** What the browser has stored of a network that was loaded from a server. */
export interface StoredModel {
  /** Of the GGUF file, or of the folder of an export. */
  address: string;
  bytes: number;
  /** False: the next visit goes on where this one stopped. */
  complete: boolean;
}

export function storedModels(): Promise<StoredModel[]>;
/** Drop what is stored of a network; returns how many bytes that were. */
export function forgetModel(address: string | URL): Promise<number>;

/** What failed (`sentence`) and what to do (`hint`); the message is both. */
export class EngineError extends Error {
  constructor(sentence: string, hint?: string, options?: ErrorOptions);
  readonly sentence: string;
  readonly hint: string;
}
export class NoWebGPUError extends EngineError {}
export class DeviceLimitError extends EngineError {}
export class DeviceLostError extends EngineError {}
export class FetchError extends EngineError {}
export class DamagedFileError extends EngineError {}
export class FormatError extends EngineError {}
export class InputError extends EngineError {}
export class GenerationError extends EngineError {}
