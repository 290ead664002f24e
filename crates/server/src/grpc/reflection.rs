//! What tools like `grpcurl` are told of the messages, so that they need no files of Envoy's.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
use tonic_reflection::server::Builder;

const DESCRIPTOR: &str = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
const RESPONSE: &str = ".envoy.service.ratelimit.v3.RateLimitResponse";
const UNITS: [(&str, i32); 7] =
    [("UNKNOWN", 0), ("SECOND", 1), ("MINUTE", 2), ("HOUR", 3), ("DAY", 4), ("MONTH", 5), ("YEAR", 6)];

/// Reflection over this service and over health.
pub(super) fn builder() -> Builder<'static> {
    Builder::configure()
        .register_file_descriptor_set(files())
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn files() -> FileDescriptorSet {
    FileDescriptorSet { file: vec![duration(), wrappers(), base(), unit(), descriptor(), service()] }
}

fn duration() -> FileDescriptorProto {
    let fields = [field("seconds", 1, Type::Int64), field("nanos", 2, Type::Int32)];
    file("google/protobuf/duration.proto", "google.protobuf", &[], [message("Duration", fields)])
}

fn wrappers() -> FileDescriptorProto {
    let wrapper = message("UInt64Value", [field("value", 1, Type::Uint64)]);
    file("google/protobuf/wrappers.proto", "google.protobuf", &[], [wrapper])
}

fn base() -> FileDescriptorProto {
    let fields = [field("key", 1, Type::String), field("value", 2, Type::String)];
    file("envoy/config/core/v3/base.proto", "envoy.config.core.v3", &[], [message("HeaderValue", fields)])
}

fn unit() -> FileDescriptorProto {
    FileDescriptorProto {
        enum_type: vec![choice("RateLimitUnit", &UNITS)],
        ..file("envoy/type/v3/ratelimit_unit.proto", "envoy.type.v3", &[], [])
    }
}

fn descriptor() -> FileDescriptorProto {
    let entry = message("Entry", [field("key", 1, Type::String), field("value", 2, Type::String)]);
    let limit = message(
        "RateLimitOverride",
        [
            field("requests_per_unit", 1, Type::Uint32),
            typed(field("unit", 2, Type::Enum), ".envoy.type.v3.RateLimitUnit"),
        ],
    );
    let fields = [
        many(typed(field("entries", 1, Type::Message), &format!("{DESCRIPTOR}.Entry"))),
        typed(field("limit", 2, Type::Message), &format!("{DESCRIPTOR}.RateLimitOverride")),
        typed(field("hits_addend", 3, Type::Message), ".google.protobuf.UInt64Value"),
        field("is_negative_hits", 4, Type::Bool),
    ];
    let whole = DescriptorProto { nested_type: vec![entry, limit], ..message("RateLimitDescriptor", fields) };
    file(
        "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
        "envoy.extensions.common.ratelimit.v3",
        &["envoy/type/v3/ratelimit_unit.proto", "google/protobuf/wrappers.proto"],
        [whole],
    )
}

fn service() -> FileDescriptorProto {
    let method = MethodDescriptorProto {
        name: Some("ShouldRateLimit".to_owned()),
        input_type: Some(".envoy.service.ratelimit.v3.RateLimitRequest".to_owned()),
        output_type: Some(RESPONSE.to_owned()),
        ..MethodDescriptorProto::default()
    };
    let service = ServiceDescriptorProto {
        name: Some("RateLimitService".to_owned()),
        method: vec![method],
        ..ServiceDescriptorProto::default()
    };
    let request = message(
        "RateLimitRequest",
        [
            field("domain", 1, Type::String),
            many(typed(field("descriptors", 2, Type::Message), DESCRIPTOR)),
            field("hits_addend", 3, Type::Uint32),
        ],
    );
    let depends = [
        "envoy/config/core/v3/base.proto",
        "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
        "google/protobuf/duration.proto",
    ];
    FileDescriptorProto {
        service: vec![service],
        ..file(
            "envoy/service/ratelimit/v3/rls.proto",
            "envoy.service.ratelimit.v3",
            &depends,
            [request, response()],
        )
    }
}

fn response() -> DescriptorProto {
    let units: Vec<(&str, i32)> = UNITS.into_iter().chain([("WEEK", 7)]).collect();
    let limit = DescriptorProto {
        enum_type: vec![choice("Unit", &units)],
        ..message(
            "RateLimit",
            [
                field("requests_per_unit", 1, Type::Uint32),
                typed(field("unit", 2, Type::Enum), &format!("{RESPONSE}.RateLimit.Unit")),
                field("name", 3, Type::String),
            ],
        )
    };
    let status = message(
        "DescriptorStatus",
        [
            typed(field("code", 1, Type::Enum), &format!("{RESPONSE}.Code")),
            typed(field("current_limit", 2, Type::Message), &format!("{RESPONSE}.RateLimit")),
            field("limit_remaining", 3, Type::Uint32),
            typed(field("duration_until_reset", 4, Type::Message), ".google.protobuf.Duration"),
        ],
    );
    let fields = [
        typed(field("overall_code", 1, Type::Enum), &format!("{RESPONSE}.Code")),
        many(typed(field("statuses", 2, Type::Message), &format!("{RESPONSE}.DescriptorStatus"))),
        many(typed(field("response_headers_to_add", 3, Type::Message), ".envoy.config.core.v3.HeaderValue")),
    ];
    DescriptorProto {
        enum_type: vec![choice("Code", &[("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)])],
        nested_type: vec![limit, status],
        ..message("RateLimitResponse", fields)
    }
}

fn file<const N: usize>(
    name: &str,
    package: &str,
    dependency: &[&str],
    messages: [DescriptorProto; N],
) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        dependency: dependency.iter().map(|&name| name.to_owned()).collect(),
        message_type: messages.into(),
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

fn message<const N: usize>(name: &str, field: [FieldDescriptorProto; N]) -> DescriptorProto {
    DescriptorProto { name: Some(name.to_owned()), field: field.into(), ..DescriptorProto::default() }
}

fn choice(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
    let value = |&(name, number): &(&str, i32)| EnumValueDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        ..EnumValueDescriptorProto::default()
    };
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: values.iter().map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}

fn field(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..FieldDescriptorProto::default()
    }
}

fn typed(field: FieldDescriptorProto, name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto { type_name: Some(name.to_owned()), ..field }
}

fn many(field: FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto { label: Some(Label::Repeated.into()), ..field }
}
