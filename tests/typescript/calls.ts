// README's calls by types that openapi-typescript made of the service's own document.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const client = createClient<paths, `application/${"" | "problem+"}json`>({ baseUrl: process.argv[2] });
const params = { query: { wait: 25 } };

const one = await client.POST("/v1/jobs", {
  params,
  body: { question: "Who wrote it?", context: "Ada wrote it in 1843." },
});
if (!one.data) throw new Error(one.error.detail);
if (one.data.task !== "question-answering") throw new Error(one.data.task);
console.log(one.data.status, one.data.results?.[0]?.answer?.text);

const many = await client.POST("/v1/jobs", {
  params,
  body: { items: [{ id: "a", question: "Who?", context: "Ada wrote it." }], priority: "high" },
});
if (many.data?.object !== "job") throw new Error(many.error?.detail);
const page = await client.GET("/v1/jobs/{job_id}/results", { params: { path: { job_id: many.data.id } } });
for (const result of page.data?.data ?? []) {
  if ("answers" in result) console.log(result.id, result.status, result.answers.length);
}

const refused = await client.POST("/v1/jobs", { body: { model: "defalt", text: "Splendid!" } });
console.log(refused.response.status, refused.error?.code);
