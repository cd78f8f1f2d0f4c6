// Package crd serves CustomResourceDefinitions and the custom resources they define.
//
// Semantics are those of k8s.io/apiextensions-apiserver: its REST storage for definitions, its handler for custom
// resources (schemas, pruning, defaulting, CEL, conversion, subresources, server-side apply) and its controllers. This
// package puts them together without a GenericAPIServer, and adds discovery, which upstream keeps private.
//
// A server can have thousands of definitions, and most of their resources are not used. So only what discovery and the controllers
// need of each is in memory; schemas are read when a request needs them, and given up some minutes after the last one.
package crd
