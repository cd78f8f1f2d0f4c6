package dialect

// Columns lists the columns of the table log that a Write fills, in the order
// in which the engines bind them after id and replaces.
const Columns = "operation, api_group, resource, key, namespace, name, uid, written_at, expires_at, user_name, field_manager, labels, fields, value"
