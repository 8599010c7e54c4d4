import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Service, startService, TOKEN } from "../typescript/tests/service";
import * as heyApi from "./hey-api";
import * as openapiTypescript from "./openapi-typescript";
import * as orval from "./orval";
import { EXPECTED_TURN } from "./turn";

let service: Service;

before(async () => {
  service = await startService();
});
after(() => service.stop());

for (const [generator, { takeTurn }] of Object.entries({ "openapi-typescript": openapiTypescript, "hey-api": heyApi, orval })) {
  test(`an agent takes its turn with the client of ${generator}`, async () => {
    const conversation = `a/turn of ${generator}`;
    assert.deepEqual(await takeTurn({ url: service.url, token: TOKEN }, conversation), EXPECTED_TURN);
  });
}
