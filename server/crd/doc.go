// Package crd serves CustomResourceDefinitions and the custom resources they define.
//
// Semantics are those of k8s.io/apiextensions-apiserver: its REST storage for definitions, its handler for custom
// resources (schemas, pruning, defaulting, CEL, conversion, subresources, server-side apply) and its controllers. What is
// here puts these together below the level of a GenericAPIServer, and adds discovery, which upstream keeps private.
package crd
