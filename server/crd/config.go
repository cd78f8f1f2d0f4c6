package crd

import (
	"errors"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Config is what custom resources need from the rest of the server. All fields are required unless marked optional.
type Config struct {
	// Storage makes the storage.Interface of a resource: of customresourcedefinitions at once, of a custom resource on first
	// use. Its DestroyFunc is called after the definition has changed or been deleted.
	Storage generic.StorageDecorator
	// Loopback reaches this server in process. The controllers use it once Run is called.
	Loopback *rest.Config
	// Admission admits changes of custom resources. (The handlers that serve Group admit changes of definitions.)
	Admission admission.Interface
	// Authorizer decides whether a user may create by updating.
	Authorizer authorizer.Authorizer
	// Discovery gets custom group versions added.
	Discovery aggregated.ResourceManager
	// Services finds the address of a conversion webhook that is given as a Service.
	Services webhook.ServiceResolver
	// Authentication finds the credentials to show to a conversion webhook.
	Authentication webhook.AuthenticationInfoResolverWrapper
	// The server's flags of the same names. 0 for MaxRequestBodyBytes means no limit, and for DeleteCollectionWorkers 1.
	RequestTimeout, MinRequestTimeout time.Duration
	MaxRequestBodyBytes               int64
	DeleteCollectionWorkers           int
	// Complete is closed when all other groups are known. Until then a request that finds nothing gets a 503. Optional.
	Complete <-chan struct{}
	// SoleServer says that no other server uses the same database: no need to wait until all of them know a new definition.
	// Optional.
	SoleServer bool
}

func (c Config) validate() error {
	switch {
	case c.Storage == nil:
		return errors.New("Storage is required: how custom resources are stored")
	case c.Loopback == nil:
		return errors.New("Loopback is required: the controllers of custom resources work through it")
	case c.Admission == nil || c.Authorizer == nil:
		return errors.New("Admission and Authorizer are required: changes of custom resources pass them")
	case c.Discovery == nil:
		return errors.New("Discovery is required: where custom resources are published")
	case c.Services == nil || c.Authentication == nil:
		return errors.New("Services and Authentication are required: conversion webhooks are reached with them")
	}
	return nil
}
