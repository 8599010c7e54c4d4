"""A TCP proxy that makes the other end some milliseconds away: ``python -m tests.postgres.delay
PORT TARGET_PORT MS``.

Each chunk is passed on ``MS`` milliseconds after it came, in each direction, however many come
meanwhile: it adds latency and takes no bandwidth. Of a round trip, half belongs to each direction.
"""

import asyncio
import sys


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    loop = asyncio.get_running_loop()
    while chunk := await reader.read(1 << 18):
        loop.call_later(delay_s, writer.write, chunk)
    loop.call_later(delay_s, writer.close)


async def _serve(port: int, target_port: int, delay_s: float) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", target_port)
        await asyncio.gather(
            _pass_on(reader, target_writer, delay_s),
            _pass_on(target_reader, writer, delay_s),
            return_exceptions=True,
        )

    server = await asyncio.start_server(connect, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
