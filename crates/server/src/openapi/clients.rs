//! Adapts the document to client generators: an id for each operation, a type for each answer.

use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{OneOfBuilder, Schema};
use utoipa::openapi::{Components, Object, OpenApi, PathItem, Ref, RefOr};

pub(super) fn adapt(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        name_by_method(item);
        for (_, operation) in operations(item) {
            name_problems(operation);
        }
    }
    if let Some(components) = &mut document.components {
        distribute(components);
        components.schemas.values_mut().for_each(remove_null_defaults);
    }
}

/// The operations of a path, with the name of their method as a suffix. GET comes first.
pub(super) fn operations(item: &mut PathItem) -> Vec<(&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
    let all = [
        ("Get", get),
        ("Put", put),
        ("Post", post),
        ("Delete", delete),
        ("Options", options),
        ("Head", head),
        ("Patch", patch),
        ("Trace", trace),
    ];
    all.into_iter().filter_map(|(suffix, operation)| Some((suffix, operation.as_mut()?))).collect()
}

/// Sets distinct ids for operations that share a function: the first keeps its id, the others add their method.
fn name_by_method(item: &mut PathItem) {
    let mut taken: Vec<String> = Vec::new();
    for (suffix, operation) in operations(item) {
        let Some(id) = &mut operation.operation_id else { continue };
        if taken.contains(id) {
            id.push_str(suffix);
        }
        taken.push(id.clone());
    }
}

/// Names the type of problem documents. Crates that do not know it describe them as objects.
fn name_problems(operation: &mut Operation) {
    for response in operation.responses.responses.values_mut() {
        let RefOr::T(response) = response else { continue };
        if let Some(RefOr::T(content)) = response.content.get_mut("application/problem+json")
            && matches!(content.schema, Some(RefOr::T(Schema::Object(_))))
        {
            content.schema = Some(Ref::from_schema_name("Problem").into());
        }
    }
}

/// Writes "one of these kinds, and these fields" as "one of these kinds with these fields". Serde's `flatten` of an
/// enum gives the former, which the generator for Python does not take.
fn distribute(components: &mut Components) {
    let names: Vec<String> = components.schemas.keys().cloned().collect();
    for name in names {
        let Some((kinds, common, from)) = flattened(components, &name) else { continue };
        let mut all = OneOfBuilder::new();
        for mut kind in kinds {
            kind.title = tag(&kind).map(|tag| format!("{name}_{tag}"));
            kind.required.extend(common.required.iter().cloned());
            kind.properties.extend(common.properties.clone());
            all = all.item(kind);
        }
        all = all.description(common.description);
        components.schemas.insert(name, all.into());
        components.schemas.remove(&from);
    }
}

/// Removes `"default": null`, which serde's `default` leaves on fields that may be left out. It is not a value of the field's type, and
/// generators treat a field with a default as always present.
fn remove_null_defaults(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    for property in object.properties.values_mut() {
        let default = match property {
            RefOr::T(Schema::Object(object)) => &mut object.default,
            RefOr::T(Schema::Array(array)) => &mut array.default,
            RefOr::T(Schema::OneOf(kinds)) => &mut kinds.default,
            RefOr::Ref(named) => &mut named.default,
            RefOr::T(_) => continue,
        };
        default.take_if(|default| default.is_null());
    }
}

/// The kinds of an enum that is flattened into a schema, the fields beside them, and the name of the enum.
fn flattened(components: &Components, name: &str) -> Option<(Vec<Object>, Object, String)> {
    let Some(RefOr::T(Schema::AllOf(all))) = components.schemas.get(name) else { return None };
    let [RefOr::Ref(kinds), RefOr::T(Schema::Object(common))] = all.items.as_slice() else { return None };
    let from = kinds.ref_location.rsplit('/').next()?.to_owned();
    let Some(RefOr::T(Schema::OneOf(kinds))) = components.schemas.get(&from) else { return None };
    let objects = kinds.items.iter().map(|kind| match kind {
        RefOr::T(Schema::Object(object)) => Some(object.clone()),
        _ => None,
    });
    let mut common = common.clone();
    common.description.clone_from(&all.description);
    Some((objects.collect::<Option<_>>()?, common, from))
}

/// The one value that the field `type` of a kind has.
fn tag(kind: &Object) -> Option<&str> {
    let Some(RefOr::T(Schema::Object(tag))) = kind.properties.get("type") else { return None };
    tag.enum_values.as_ref()?.first()?.as_str()
}
