// Plays rollouts over one gRPC stream, by appends, with the published gRPC client for Node; what it costs is measured
// from outside. Above it: grpc_node.py, which says in a line of JSON what is to be done, and reads what became of it:
//
//   {address, ca, model, rollout, fork}   connects, opens a session and plays the first turn once; answers {}
//   {rollouts, agents}                    plays a closed loop; answers {} when it has ended
//   {}                                    answers {rollouts: […]}, those that did not end included
//
// Moments are seconds of this process's monotonic clock: only their differences mean anything to others.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { performance } from 'node:perf_hooks';
import { createInterface } from 'node:readline';

const [packages, protos] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const DELTAS = new Set([
  'output_text_delta', 'function_call_arguments_delta', 'reasoning_text_delta', 'reasoning_summary_text_delta',
]);

const now = () => performance.now() / 1000;
const until = (due) => new Promise((resolve) => setTimeout(resolve, Math.max(0, (due - now()) * 1000)));

// One session: its lanes, and the turns that are played in them.
class Session {
  constructor({ address, ca, model, rollout }) {
    const options = { keepCase: true, longs: Number, enums: String, oneofs: true, includeDirs: [protos] };
    const { turnwire } = grpc.loadPackageDefinition(loader.loadSync('turnwire/v1/responses_service.proto', options));
    const credentials = ca ? grpc.credentials.createSsl(readFileSync(ca)) : grpc.credentials.createInsecure();
    const limits = { 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1 };
    this.client = new turnwire.v1.ResponsesService(address, credentials, limits);
    this.model = model;
    this.rollout = rollout;
    this.lanes = new Map();
    this.conversations = new Map();
    this.handles = new Map();
  }

  open() {
    return new Promise((resolve, reject) => {
      this.call = this.client.Connect();
      this.call.on('data', (batch) => {
        const at = now();
        for (const event of batch.events ?? []) {
          if (event.event === 'opened') resolve();
          else this.take(event, at);
        }
      });
      const ended = (why) => {
        reject(new Error(why));
        for (const waiting of this.lanes.values()) waiting.fail(why);
      };
      this.call.on('error', (error) => ended(error.message));
      this.call.on('end', () => ended('the stream ended'));
      this.call.write({ open: { session_credit_bytes: 0, response_credit_bytes: 0 } });
    });
  }

  conversation(lane, from = '') {
    const made = { lane, id: from, held: false };
    this.conversations.set(lane, made);
    return made;
  }

  // Plays one turn: an append into the response that is held, else a create.
  turn(conversation, items) {
    const { lane } = conversation;
    return new Promise((resolve, reject) => {
      const turn = { sent: now(), arrivals: [], done: 0, text: '', calls: [], told: null, ids: 0, logprobs: 0 };
      const ended = (settle, value) => { this.lanes.delete(lane); settle(value); };
      this.lanes.set(lane, {
        turn, end: () => ended(resolve, turn), fail: (why) => ended(reject, new Error(why)),
      });
      this.call.write(conversation.held
        ? { lane, append: { response_id: conversation.id, input: items } }
        : { lane, create: this.create(conversation, items) });
    });
  }

  create({ id }, items) {
    const { done_only, token_ids, logprobs } = this.rollout.output;
    const request = { input: { items: { items } }, store: false, hold: true };
    if (done_only) request.verbosity = 'VERBOSITY_DONE';
    if (token_ids || logprobs) request.token_output = { in_done: true, logprobs };
    if (id) return { ...request, previous_response_id: id, inherit: true };
    const { instructions, tools, history } = this.rollout;
    request.input.items.items = [...history.map(message), ...items];
    return { ...request, model: this.model, instructions, tools: { tools: tools.map((tool) => ({ function: tool })) } };
  }

  take(event, at) {
    const kind = event.event;
    if (kind === 'created') {
      const { lane, response } = event.created;
      this.conversations.get(lane).id = response.id;
      this.handles.set(event.response, lane);
    } else if (kind === 'rejected') {
      const { lane, error } = event.rejected;
      this.lanes.get(lane)?.fail(`${error.code}: ${error.message}`);
    } else {
      const lane = this.handles.get(event.response);
      const waiting = this.lanes.get(lane);
      if (waiting) this.put(waiting, this.conversations.get(lane), event, at);
    }
  }

  put({ turn, end, fail }, conversation, event, at) {
    const kind = event.event;
    if (DELTAS.has(kind)) {
      turn.arrivals.push(at);
      if (kind === 'output_text_delta') turn.text += event[kind].delta;
    } else if (kind === 'output_item_done') {
      takeCall(turn, event.output_item_done.item);
    } else if (kind === 'done') {
      const { reason, error, times, output, token_output } = event.done;
      turn.done = at;
      for (const item of output ?? []) {
        takeCall(turn, item);
        if (item.kind === 'message') turn.text += item.message.content.parts.parts.map((part) => part.output_text.text).join('');
      }
      for (const span of token_output?.spans ?? []) {
        if (span.sampled) {
          turn.ids += span.ids?.length ?? 0;
          turn.logprobs += span.logprobs?.length ?? 0;
        }
      }
      if (times) turn.told = [times.queued ?? 0, times.pre_inference ?? 0, times.inference ?? 0, times.post_inference ?? 0];
      conversation.held = reason === 'DONE_REASON_TOOL_CALLS';
      if (!conversation.held) this.handles.delete(event.response);
      if (conversation.held || reason === 'DONE_REASON_COMPLETED') end();
      else fail(`${reason}: ${error?.message ?? ''}`);
    }
  }
}

function takeCall(turn, item) {
  if (item.kind === 'function_call') {
    const { call_id, name, arguments: text } = item.function_call;
    turn.calls.push([call_id, name, text]);
  }
}

const message = (text) => ({ message: { role: 'ROLE_USER', content: { text } } });
const output = (call_id, text) => ({ function_call_output: { call_id, output: { text } } });

// Plays turns that follow one another, from the one of that number on; returns what comes after them.
async function turns(session, conversation, planned, first, items, record) {
  for (const [place, plan] of planned.entries()) {
    const turn = await session.turn(conversation, items);
    record.turns.push({ number: first + place, ...turn });
    if (turn.calls.length !== plan.outputs.length) {
      throw new Error(`turn ${first + place + 1}: ${turn.calls.length} calls, expected ${plan.outputs.length}`);
    }
    if (plan.pause) {
      const due = turn.done + plan.pause;
      await until(due);
      record.lags.push(now() - due);
    }
    items = plan.outputs.length
      ? turn.calls.map(([id], index) => output(id, plan.outputs[index]))
      : [message(plan.reply)];
  }
  return items;
}

async function rollout(session, fork, lane, record) {
  const planned = session.rollout.turns;
  const conversation = session.conversation(lane);
  const after = fork ? fork.after : planned.length;
  const items = await turns(session, conversation, planned.slice(0, after), 0, [message(session.rollout.message)], record);
  if (!fork) return;
  const branches = Array.from({ length: fork.lanes }, (_, n) => ({ lane: `${lane}f${n}`, turns: [], lags: [] }));
  await Promise.all(branches.map((branch) => turns(
    session, session.conversation(branch.lane, conversation.id), planned.slice(after), after, items, branch,
  )));
  for (const branch of branches) {
    record.turns.push(...branch.turns);
    record.lags.push(...branch.lags);
  }
}

async function closedLoop(session, fork, load, records) {
  let left = load.rollouts;
  const agent = async (lane) => {
    while (left > 0) {
      left -= 1;
      const record = { took: 0, start_lag: 0, turns: [], lags: [], failure: 'it did not come to its end' };
      records.push(record);
      const began = now();
      try {
        await rollout(session, fork, lane, record);
        record.failure = '';
      } catch (error) {
        record.failure = error.message;
      }
      record.took = now() - began;
    }
  };
  await Promise.all(Array.from({ length: load.agents }, (_, n) => agent(`a${n}`)));
}

const tell = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const records = [];
let session = null;
let fork = null;

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  if (asked.address) {
    session = new Session(asked);
    fork = asked.fork;
    await session.open();
    const [first] = session.rollout.turns;
    const items = [message(session.rollout.message)];
    await turns(session, session.conversation('warm-up'), [{ ...first, pause: 0 }], 0, items, { turns: [], lags: [] });
    tell({});
  } else if (asked.agents) {
    // Not waited for: what there is can be asked for before it has ended.
    closedLoop(session, fork, asked, records).then(() => tell({}));
  } else {
    tell({ rollouts: records });
  }
}
session?.call.cancel();
session?.client.close();
