// Prints an answer of a model as it is generated.
//
//   npm install
//   MLC_NATIVE_LIB_DIR="$(python -P -c 'import mlc_native; print(mlc_native.lib_dir())')" \
//       node ask.mjs path/to/model "Who are you?"
//
// The engine computes on threads of its own. The event loop of Node stays free: a poll that waits runs on
// a thread of koffi and resolves a promise.
import koffi from "koffi";
import path from "node:path";
import { promisify } from "node:util";

const lib = koffi.load(path.join(process.env.MLC_NATIVE_LIB_DIR ?? ".", "libmlc_native_c.so"));

const Output = koffi.struct("mlcn_output", {
  size: "uint32_t",
  index: "int32_t",
  is_final: "int32_t",
  finish_reason: "int32_t",
  request: "void *",
  user_data: "void *",
  text: "const char *",
  text_length: "size_t",
  tokens: "const int32_t *",
  num_tokens: "size_t",
  logprobs: "void *",
  prompt_logprobs: "void *",
  usage: "void *",
  error_message: "const char *",
});
const create = lib.func(
  "int32_t mlcn_engine_create(const char *, const char *, void *, _Out_ void **, _Out_ void **)");
const destroy = lib.func("int32_t mlcn_engine_destroy(void *, void *)");
const submit = lib.func(
  "int32_t mlcn_submit(void *, const char *, size_t, void *, _Out_ void **, _Out_ void **)");
const release = lib.func("void mlcn_request_release(void *)");
const poll = lib.func("int32_t mlcn_poll(void *, size_t, int64_t, _Out_ void **, _Out_ void **)");
const count = lib.func("size_t mlcn_outputs_count(void *)");
const at = lib.func("mlcn_output *mlcn_outputs_at(void *, size_t)");
const freeOutputs = lib.func("void mlcn_outputs_release(void *)");
const errorField = lib.func("const char *mlcn_error_field(void *)");
const errorMessage = lib.func("const char *mlcn_error_message(void *)");
const releaseError = lib.func("void mlcn_error_release(void *)");

// Calls a function whose last two arguments are pointers to a result and to an error.
function call(fn, ...args) {
  const [result, error] = [[null], [null]];
  if (fn(...args, result, error) === 0) return result[0];
  const message = `${errorField(error[0])}: ${errorMessage(error[0])}`;
  releaseError(error[0]);
  throw new Error(message);
}

const FOREVER = -1;
const pollAsync = promisify(poll.async);

// Yields the texts of the answer to one request. One at a time: a poll takes the outputs of all requests, and
// several answers would take each other's.
async function* answer(engine, body) {
  const text = JSON.stringify(body);
  release(call(submit, engine, text, Buffer.byteLength(text), null));
  for (let ended = false; !ended; ) {
    const [outputs, error] = [[null], [null]];
    await pollAsync(engine, 16, FOREVER, outputs, error);
    const pieces = [];
    for (let i = 0; i < Number(count(outputs[0])); i++) {
      const output = koffi.decode(at(outputs[0], i), Output);
      if (output.text) pieces.push(output.text);
      ended ||= output.is_final !== 0;
    }
    freeOutputs(outputs[0]);
    yield* pieces;
  }
}

const [model, question] = process.argv.slice(2);
if (question === undefined) {
  console.error("usage: node ask.mjs MODEL QUESTION");
  process.exit(2);
}
const engine = call(create, model, '{"max_num_sequence": 1}', null);
const messages = [{ role: "user", content: question }];
for await (const text of answer(engine, { messages, temperature: 0, max_tokens: 64 })) {
  process.stdout.write(text);
}
process.stdout.write("\n");
destroy(engine, null);
