// OpenAI's library for Node and Vercel's ai SDK: node clients.mjs URL KEY
import assert from 'node:assert/strict';
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {generateObject, generateText, stepCountIs, streamText, tool} from 'ai';
import OpenAI from 'openai';
import {z} from 'zod';

const [url, key] = process.argv.slice(2);
const QUESTION = 'What is the capital of France?';
const ANSWER = 'The capital of France is Paris.';
const TOOL_QUESTION = 'What is the weather in Paris?';
const RESULT = {temperature: 17, sky: 'sunny'};
const TOOL_ANSWER = 'It is 17 degrees and sunny in Paris.';
const PERSON_QUESTION = 'Give me a JSON object with name and age for Ella, 52.';

async function openai() {
  const client = new OpenAI({baseURL: `${url}/v1`, apiKey: key, maxRetries: 0});
  const ask = {model: 'demo', temperature: 0, messages: [{role: 'user', content: QUESTION}]};
  const plain = await client.chat.completions.create(ask);
  assert.equal(plain.choices[0].message.content, ANSWER);
  let text = '';
  for await (const chunk of await client.chat.completions.create({...ask, stream: true})) {
    text += chunk.choices[0]?.delta?.content ?? '';
  }
  assert.equal(text, ANSWER);
  const parameters = {type: 'object', properties: {city: {type: 'string'}}, required: ['city']};
  const runner = client.chat.completions.runTools({
    ...ask,
    messages: [{role: 'user', content: TOOL_QUESTION}],
    tools: [{
      type: 'function',
      function: {
        name: 'get_weather', description: 'Get the weather of a city.', parameters,
        parse: JSON.parse, function: ({city}) => (assert.equal(city, 'Paris'), RESULT),
      },
    }],
  });
  assert.match(await runner.finalContent(), /^It is .* in Paris\.$/);
  const response = await client.responses.create({model: 'demo', input: QUESTION, temperature: 0});
  assert.equal(response.output_text, ANSWER);
}

async function vercel() {
  const provider = createOpenAICompatible({
    name: 'local', baseURL: `${url}/v1`, apiKey: key, supportsStructuredOutputs: true,
  });
  const common = {model: provider('demo'), temperature: 0, maxRetries: 0};
  assert.equal((await generateText({...common, prompt: QUESTION})).text, ANSWER);
  assert.equal(await streamText({...common, prompt: QUESTION}).text, ANSWER);
  const cities = [];
  const get_weather = tool({
    description: 'Get the weather of a city.',
    inputSchema: z.object({city: z.string()}),
    execute: async ({city}) => (cities.push(city), RESULT),
  });
  const {text} = await generateText({
    ...common, prompt: TOOL_QUESTION, tools: {get_weather}, stopWhen: stepCountIs(3),
    prepareStep: ({stepNumber}) => ({toolChoice: stepNumber === 0 ? 'required' : 'none'}),
  });
  assert.deepEqual(cities, ['Paris']);
  assert.equal(text, TOOL_ANSWER);
  const schema = z.object({name: z.string(), age: z.number().int()});
  const {object} = await generateObject({...common, schema, prompt: PERSON_QUESTION});
  assert.deepEqual(object, {name: 'Ella', age: 52});
}

for (const run of [openai, vercel]) {
  await run();
  console.log(`ok ${run.name}`);
}
