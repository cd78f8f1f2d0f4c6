// Package s3 tests sqube backup --follow with an S3 store.
package s3
