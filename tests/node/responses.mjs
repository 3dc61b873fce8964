// Reads responses with the OpenAI SDK for Node and prints what it saw, as JSON. The test judges.
import OpenAI, { APIError } from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY, maxRetries: 0 });
const said = "hello there my friend";
const weather = {
  type: "function",
  name: "weather",
  strict: true,
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
};

// The events as they come, and what the SDK's own accumulator makes of the same question.
async function read(fields) {
  const types = [];
  let last;
  for await (const event of await client.responses.create({ input: said, ...fields, stream: true })) {
    types.push(event.type);
    last = event;
  }
  const helper = client.responses.stream({ input: said, ...fields });
  const final = await helper.finalResponse();
  return { types, terminal: last.response, final };
}

async function failing(fields) {
  const seen = { words: 0 };
  try {
    for await (const event of await client.responses.create({ input: said, ...fields })) {
      seen.words += event.type === "response.output_text.delta";
    }
  } catch (error) {
    const { status, code, type, param, requestID } = error;
    return { ...seen, isAPIError: error instanceof APIError, name: error.constructor.name, status, code, type, param, requestID };
  }
  return seen;
}

async function loop() {
  const input = [{ role: "user", content: "weather in Bern?" }];
  const called = await client.responses.create({ model: "words", input, tools: [weather] });
  const call = called.output.find((item) => item.type === "function_call");
  input.push(...called.output, { type: "function_call_output", call_id: call.call_id, output: "sunny" });
  return (await client.responses.create({ model: "words", input, tools: [weather] })).output_text;
}

const plain = await client.responses.create({ model: "echo", input: said });
console.log(
  JSON.stringify({
    plain: { text: plain.output_text, id: plain.id, requestID: plain._request_id },
    text: await read({ model: "echo" }),
    refusal: await read({ model: "refusal" }),
    call: await read({ model: "words", tools: [weather], tool_choice: "required" }),
    thoughts: await read({ model: "thinker" }),
    summary: await read({ model: "thinker", reasoning: { summary: "auto" } }),
    search: await read({ model: "words", tools: [{ type: "web_search" }] }),
    incomplete: await read({ model: "endless", max_output_tokens: 5 }),
    loop: await loop(),
    cut: await failing({ model: "fails-cut-midway", stream: true }),
    refused: await failing({ model: "echo", store: true }),
  }),
);
