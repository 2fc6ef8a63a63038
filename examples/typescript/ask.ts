// Ask one question, and many in a job, with types for every field of the service.
//
// Take Node 20 or later with npm, and the address of a service, in this folder:
//
//     npm install
//     npm run build
//     node dist/ask.js http://127.0.0.1:8000

import { connect, read, results } from "./client.js";

const client = connect(process.argv[2] ?? "http://127.0.0.1:8000", process.env.CORELANE_API_KEY);

const question = { question: "Who wrote it?", context: "Ada wrote it in 1843." };
const one = read(await client.POST("/v1/jobs", { params: { query: { wait: 25 } }, body: question }));
if (one.task !== "question-answering") throw new Error(`the default model is for ${one.task}`);
console.log(one.status, one.results?.[0]?.answer?.text);

const items = Array.from({ length: 2000 }, (_, place) => ({ id: `line ${place}`, ...question }));
const many = read(await client.POST("/v1/jobs", { body: { items, priority: "low" } }));
const answers: string[] = [];
for await (const result of results(client, many.id)) {
  if ("answers" in result && result.answer) answers.push(result.answer.text);
}
console.log(answers.length, new Set(answers));

const refused = await client.POST("/v1/jobs", { body: { model: "defalt", text: "Splendid!" } });
console.log(refused.response.status, refused.error?.code);
