// The same load through rate-limiter-flexible. Prints decisions per second and the median latency in microseconds.
const Redis = require('ioredis');
const { RateLimiterRedis } = require('rate-limiter-flexible');

const [port, callers, decisions, keys] = process.argv.slice(2).map(Number);
const client = new Redis(port, '127.0.0.1');
const limiter = new RateLimiterRedis({ storeClient: client, points: 10_000_000, duration: 60 });

async function caller(number, took) {
  for (let turn = 0; turn < decisions / callers; turn += 1) {
    const key = keys === 0 ? 'hot' : `user:${number}-${turn % keys}`;
    const began = process.hrtime.bigint();
    await limiter.consume(key, 1);
    took.push(Number(process.hrtime.bigint() - began) / 1e3);
  }
}

async function main() {
  const took = [];
  const began = process.hrtime.bigint();
  await Promise.all(Array.from({ length: callers }, (_, number) => caller(number, took)));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  took.sort((a, b) => a - b);
  console.log(took.length / seconds, took[took.length >> 1]);
  client.disconnect();
}

main();
