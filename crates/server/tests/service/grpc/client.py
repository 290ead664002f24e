"""Asks a Spile over gRPC with messages that it learns by reflection."""

import sys

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(sys.argv[1])
database = ProtoReflectionDescriptorDatabase(channel)
assert "envoy.service.ratelimit.v3.RateLimitService" in database.get_services()

pool = DescriptorPool(database)
service = pool.FindServiceByName("envoy.service.ratelimit.v3.RateLimitService")
method = service.FindMethodByName("ShouldRateLimit")
Request = message_factory.GetMessageClass(method.input_type)
Response = message_factory.GetMessageClass(method.output_type)
ask = channel.unary_unary(
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    request_serializer=Request.SerializeToString,
    response_deserializer=Response.FromString,
)


def request(*entries, **own):
    built = Request(domain="edge")
    descriptor = built.descriptors.add(**own)
    for key, value in entries:
        descriptor.entries.add(key=key, value=value)
    return built


login = [("generic_key", "login"), ("remote_address", "1.2.3.4")]
for left in (2, 1, 0):
    answer = ask(request(*login))
    assert answer.overall_code == Response.OK, answer
    assert answer.statuses[0].limit_remaining == left, answer
    assert answer.statuses[0].current_limit.name == "three", answer
    assert answer.statuses[0].current_limit.unit == Response.RateLimit.MINUTE, answer
refused = ask(request(*login))
assert refused.overall_code == Response.OVER_LIMIT, refused
assert "retry-after" in {header.key for header in refused.response_headers_to_add}, refused
looked = ask(request(("remote_address", "::1"), hits_addend={"value": 0}))
assert looked.statuses[0].limit_remaining == 10, looked
own = ask(request(("x", "y"), limit={"requests_per_unit": 7, "unit": "HOUR"}))
assert own.statuses[0].limit_remaining == 6, own
try:
    ask(Request(domain="edge"))
    raise SystemExit("a request without descriptors was taken")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
print("all is well")
