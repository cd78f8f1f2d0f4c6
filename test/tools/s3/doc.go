// Package s3 tests sqube backup --follow with a store that speaks S3.
package s3
